"""`glidepath gate serve` as a process of its own, for measurements and rehearsals: started, looked at, killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

KEY = "gate-bench-key-0123456789abcdef"
TOKEN = "bench-token-0123456789abcdef"  # noqa: S105 - of nothing that lasts
PROVIDER_KEY = "sk-provider-0123456789abcdef"
CONFIG = """
[gate]
drain = 5

[upstreams.anthropic]
dialect = "anthropic"
url = "{url}"
key = "file:provider.key"

[upstreams.openai]
dialect = "openai"
url = "{url}"
key = "file:provider.key"

[upstreams.gemini]
dialect = "gemini"
url = "{url}"
key = "file:provider.key"

{more}
"""
ONE_KEY = '[keys.bench]\nkey = "env:BENCH_KEY"\n'


class ServedProcess:
    """A gate in a folder of its own. `more` is what the configuration says of keys and limits."""

    def __init__(self, upstream, *, more=ONE_KEY, store=None, port=0, folder=None):
        self.folder = Path(folder or tempfile.mkdtemp(prefix="gate-served-"))
        self.store = store or str(self.folder / "store")
        self.port = port
        self.process = None
        self.url = ""
        self.put_key(PROVIDER_KEY)
        self.configure(upstream, more)

    def configure(self, upstream, more):
        config = self.folder / "gate.toml"
        config.write_text(CONFIG.format(url=upstream, more=more))
        config.chmod(0o600)

    def put_key(self, secret):
        """Rotate the provider's key: the file is replaced, as an operator does it."""
        new = self.folder / "provider.key.new"
        new.write_text(secret)
        new.chmod(0o600)
        new.replace(self.folder / "provider.key")

    def start(self):
        env = os.environ | {
            "BENCH_KEY": KEY,
            "GLIDEPATH_SERVE_TOKEN": TOKEN,
            "HOME": str(self.folder),
            "XDG_DATA_HOME": str(self.folder / "data"),
        }
        flags = ["--config", "gate.toml", "--port", str(self.port), "--store", self.store]
        self.log = (self.folder / "gate.log").open("ab")
        seen = self.log.tell()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "glidepath", "gate", "serve", *flags],
            cwd=self.folder,
            env=env,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        for _ in range(600):
            said = (self.folder / "gate.log").read_bytes()[seen:].decode(errors="replace")
            if self.process.poll() is not None:
                raise SystemExit(f"the gate did not start: {said[-2000:]}")
            if "The gate is at " in said:
                self.url = said.rpartition("The gate is at ")[2].partition(";")[0]
                self.port = int(self.url.rpartition(":")[2])
                try:
                    urllib.request.urlopen(f"{self.url}/readyz", timeout=5).close()  # noqa: S310 - our own process
                except OSError:
                    pass
                else:
                    return self
            time.sleep(0.1)
        raise SystemExit("the gate did not answer")

    def stop(self):
        """SIGTERM, and wait: calls in flight may finish."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        return None if self.process is None else self.process.returncode

    def reload(self):
        """SIGHUP, and wait until the gate says what came of it."""
        seen = len((self.folder / "gate.log").read_bytes())
        self.process.send_signal(signal.SIGHUP)
        for _ in range(600):
            said = (self.folder / "gate.log").read_bytes()[seen:].decode(errors="replace")
            if "was read again" in said:
                return
            time.sleep(0.1)
        raise SystemExit(f"the configuration was not read again: {said[-2000:]}")

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        self.process.wait(30)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def usage(self):
        """CPU seconds, and MiB in memory, of the process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        return (int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * page / 2**20
