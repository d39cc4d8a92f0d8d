import "uplot/dist/uPlot.min.css";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/list.css";
import "./styles/run.css";
import "./styles/pages.css";

import { render } from "preact";
import { embedded } from "./embedded";
import { startKeys } from "./keys";
import { places, route, startRouter } from "./router";
import { expectRun } from "./store/run";
import { loadInfo, startClock } from "./store/session";
import { startTheme } from "./theme";
import { adoptToken } from "./token";
import { begin, Shell } from "./views/shell";

const unlocked = adoptToken();
const kept = embedded();
if (kept && !location.hash.startsWith("#/runs/")) history.replaceState(null, "", places.run(kept.data.run.run_id));
startTheme();
startRouter();
const first = route.peek();
if (first.view === "run") expectRun(first.id);
startKeys();
startClock();
render(<Shell />, document.getElementById("deck")!);
void unlocked.then(loadInfo).then((found) => {
  if (found) begin();
});
