-- The fleet's tables, and the few functions that change them. Each is one statement, so one round trip and no race.
--
-- A budget row counts what was granted to runs, spent or not. A run gives back what it has not spent, so the sum of all
-- spending can never be above `max_*`. `firm` is the part of it that will not come back: spent, or kept for a landing.
-- Rows are locked in the order of a line, from the fleet down to the day of a tenant: two draws never deadlock.
--
-- A run that must wait for a budget is in `glidepath_waiting`, and is notified when something is given back. One that has
-- yet to start keeps nothing, so it also waits for what others keep for their landings, in order of arrival: a start that
-- would fit waits behind an earlier one that is short of the same budget (`tight`).
-- `fleet_ledger.py` fills in @LAYOUT, @PARTS and @FREED.

CREATE TABLE IF NOT EXISTS glidepath_fleet_layout(version int NOT NULL);
INSERT INTO glidepath_fleet_layout SELECT @LAYOUT WHERE NOT EXISTS (SELECT 1 FROM glidepath_fleet_layout);
CREATE TABLE IF NOT EXISTS glidepath_budgets(
  name text PRIMARY KEY, max_tokens bigint, max_money bigint, max_runs bigint,
  tokens bigint NOT NULL DEFAULT 0, money bigint NOT NULL DEFAULT 0, runs bigint NOT NULL DEFAULT 0,
  firm_tokens bigint NOT NULL DEFAULT 0, firm_money bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS glidepath_tenants(
  name text PRIMARY KEY, day_tokens bigint, day_money bigint, day_runs bigint,
  month_tokens bigint, month_money bigint, month_runs bigint);
CREATE TABLE IF NOT EXISTS glidepath_fleet_runs(
  session text PRIMARY KEY, agent text NOT NULL, tenant text, digest text NOT NULL, submitted float8 NOT NULL,
  leg bigint NOT NULL DEFAULT 0,
  line text[] NOT NULL DEFAULT '{}', base_tokens bigint NOT NULL DEFAULT 0, base_money bigint NOT NULL DEFAULT 0,
  tokens bigint NOT NULL DEFAULT 0, money bigint NOT NULL DEFAULT 0,
  firm_tokens bigint NOT NULL DEFAULT 0, firm_money bigint NOT NULL DEFAULT 0,
  taken int NOT NULL DEFAULT 0, worker text, outcome text, error text, ended float8) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS glidepath_fleet_runs_open ON glidepath_fleet_runs(session) WHERE outcome IS NULL;
CREATE TABLE IF NOT EXISTS glidepath_rates(
  model text PRIMARY KEY, requests float8, tokens float8, per float8 NOT NULL, burst int NOT NULL DEFAULT 1,
  next_request float8 NOT NULL DEFAULT 0, next_tokens float8 NOT NULL DEFAULT 0) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS glidepath_workers(
  id text PRIMARY KEY, expires float8 NOT NULL, started float8 NOT NULL, agents text[] NOT NULL) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS glidepath_waiting(session text PRIMARY KEY, since float8 NOT NULL);
ALTER TABLE glidepath_waiting ADD COLUMN IF NOT EXISTS starting boolean NOT NULL DEFAULT false,
  ADD COLUMN IF NOT EXISTS tight text;
ALTER TABLE glidepath_fleet_runs ADD COLUMN IF NOT EXISTS spent_tokens bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS spent_money bigint NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS glidepath_fleet_runs_odd ON glidepath_fleet_runs(outcome)
  WHERE outcome IN ('failed', 'paused');
CREATE TABLE IF NOT EXISTS glidepath_fleet_parts(version int NOT NULL);
CREATE TABLE IF NOT EXISTS glidepath_rate_uses(
  model text NOT NULL, at float8 NOT NULL, requests bigint NOT NULL, tokens bigint NOT NULL, PRIMARY KEY(model, at))
  WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS glidepath_switches(
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, scope text NOT NULL, name text NOT NULL,
  reason text NOT NULL, who text NOT NULL, thrown float8 NOT NULL, stopped text[] NOT NULL DEFAULT '{}',
  released float8, release_reason text, released_by text);
CREATE UNIQUE INDEX IF NOT EXISTS glidepath_switches_on ON glidepath_switches(scope, name) WHERE released IS NULL;
DELETE FROM glidepath_fleet_parts;
INSERT INTO glidepath_fleet_parts VALUES(@PARTS);

CREATE OR REPLACE FUNCTION glidepath_line(p_tenant text, p_at timestamptz) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
  line text[] := '{}'; t glidepath_tenants; month text; day text;
  moment timestamp := coalesce(p_at, clock_timestamp()) AT TIME ZONE 'UTC';
BEGIN
  IF EXISTS (SELECT 1 FROM glidepath_budgets WHERE name = 'fleet') THEN line := ARRAY['fleet']; END IF;
  IF p_tenant IS NULL THEN RETURN line; END IF;
  month := 'tenant ' || p_tenant || ', month ' || to_char(moment, 'YYYY-MM');
  day := 'tenant ' || p_tenant || ', day ' || to_char(moment, 'YYYY-MM-DD');
  IF NOT EXISTS (SELECT 1 FROM glidepath_budgets WHERE name = day) THEN
    SELECT * INTO t FROM glidepath_tenants WHERE name = p_tenant;
    IF NOT FOUND THEN RETURN NULL; END IF;
    INSERT INTO glidepath_budgets(name, max_tokens, max_money, max_runs) VALUES
      (month, t.month_tokens, t.month_money, t.month_runs), (day, t.day_tokens, t.day_money, t.day_runs)
      ON CONFLICT (name) DO NOTHING;
  END IF;
  RETURN line || month || day;
END $$;

-- Not all tables of the engine have foreign keys; a table that its version lacks is skipped.
CREATE OR REPLACE FUNCTION glidepath_forget(p_session text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  part text;
BEGIN
  IF to_regclass('dbos.workflow_status') IS NULL THEN RETURN; END IF;
  PERFORM 1 FROM dbos.workflow_status WHERE workflow_uuid = p_session AND status NOT IN ('ENQUEUED', 'PENDING');
  IF NOT FOUND THEN RETURN; END IF;
  FOREACH part IN ARRAY ARRAY['workflow_input', 'workflow_output', 'operation_outputs', 'workflow_status'] LOOP
    IF to_regclass('dbos.' || part) IS NOT NULL THEN
      EXECUTE format('DELETE FROM dbos.%I WHERE workflow_uuid = $1', part) USING p_session;
    END IF;
  END LOOP;
END $$;

-- Called after the budget rows were changed, so its snapshot has every run that was told to wait before.
CREATE OR REPLACE FUNCTION glidepath_tell() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM glidepath_waiting) THEN PERFORM pg_notify('@FREED', ''); END IF;
END $$;

-- A row of `glidepath_switches` is one throw of a kill switch, and stays when it is released: who, when and why.
CREATE OR REPLACE FUNCTION glidepath_held(p_tenant text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT 'the kill switch of ' || CASE scope WHEN 'fleet' THEN 'the fleet' ELSE 'tenant ' || name END ||
    ' is thrown: ' || reason FROM glidepath_switches
  WHERE released IS NULL AND (scope = 'fleet' OR name = p_tenant) ORDER BY scope LIMIT 1
$$;

-- What live runs keep of a budget for their landings: it comes back when they end. Not of those that wait themselves, nor
-- of those that no worker has touched for half a minute.
CREATE OR REPLACE FUNCTION glidepath_kept(p_name text, p_session text, OUT tokens bigint, OUT money bigint)
LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(greatest(0, f.firm_tokens - f.spent_tokens)), 0)::bigint,
    coalesce(sum(greatest(0, f.firm_money - f.spent_money)), 0)::bigint
  FROM glidepath_fleet_runs f JOIN glidepath_sessions s ON s.id = f.session
  WHERE f.outcome IS NULL AND p_name = ANY(f.line) AND f.session <> p_session
    AND greatest(s.expires, s.updated) >= extract(epoch FROM clock_timestamp())::float8 - 30
    AND NOT EXISTS (SELECT 1 FROM glidepath_waiting w WHERE w.session = f.session)
$$;

CREATE OR REPLACE FUNCTION glidepath_admit(
  p_session text, p_agent text, p_tenant text, p_task text, p_digest text, p_at timestamptz)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  line text[]; b glidepath_budgets; n text; now_ float8 := extract(epoch FROM clock_timestamp())::float8; same boolean;
  held text; kept record;
BEGIN
  SELECT (agent, coalesce(tenant, ''), digest) = (p_agent, coalesce(p_tenant, ''), p_digest) INTO same
    FROM glidepath_fleet_runs WHERE session = p_session;
  IF FOUND THEN RETURN CASE WHEN same THEN 'known' ELSE 'other' END; END IF;
  line := glidepath_line(p_tenant, p_at);
  IF line IS NULL THEN RETURN 'tenant'; END IF;
  held := glidepath_held(p_tenant);
  IF held IS NOT NULL THEN RETURN 'held: ' || held; END IF;
  FOREACH n IN ARRAY line LOOP
    SELECT * INTO b FROM glidepath_budgets WHERE name = n FOR UPDATE;
    IF b.runs >= b.max_runs THEN
      RETURN n || CASE b.max_runs WHEN 1 THEN ': its only run is used' ELSE ': all ' || b.max_runs || ' runs are used' END;
    END IF;
    IF b.firm_tokens >= b.max_tokens OR b.firm_money >= b.max_money THEN  -- what comes back is not used
      SELECT * INTO kept FROM glidepath_kept(n, p_session);
      b.firm_tokens := b.firm_tokens - kept.tokens; b.firm_money := b.firm_money - kept.money;
    END IF;
    IF b.firm_tokens >= b.max_tokens THEN RETURN n || ': all ' || b.max_tokens || ' tokens are used'; END IF;
    IF b.firm_money >= b.max_money THEN
      RETURN n || ': all $' || trim_scale(b.max_money / 1000000000000.0) || ' are used';
    END IF;
  END LOOP;
  PERFORM glidepath_forget(p_session);  -- what the engine still knows of an earlier run with this id
  INSERT INTO glidepath_fleet_runs(session, agent, tenant, digest, submitted)
    VALUES(p_session, p_agent, p_tenant, p_digest, now_) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN glidepath_admit(p_session, p_agent, p_tenant, p_task, p_digest, p_at); END IF;
  UPDATE glidepath_budgets SET runs = runs + 1 WHERE name = ANY(line);
  INSERT INTO glidepath_sessions(id, updated, summary) VALUES(p_session, now_, convert_to(json_build_object(
    'state', 'queued', 'outcome', NULL, 'run_id', '', 'agent', p_agent, 'model', '', 'task', p_task, 'iterations', 0,
    'messages', 0, 'tokens', 0, 'cost', NULL, 'parent', NULL)::text, 'UTF8')) ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND THEN RETURN 'session'; END IF;
  RETURN '';
END $$;

CREATE OR REPLACE FUNCTION glidepath_open(p_session text, p_leg bigint, p_worker text) RETURNS boolean
LANGUAGE sql AS $$
  UPDATE glidepath_fleet_runs SET leg = p_leg, worker = p_worker WHERE session = p_session AND leg <= p_leg
  RETURNING true
$$;

-- asked: what the next call may cost; least: the smallest useful call; landing, flight: kept back, and in flight now
-- starting: the run has yet to start, so it also waits for the landings of others, and for its turn
CREATE OR REPLACE FUNCTION glidepath_draw_as(
  p_session text, p_leg bigint, p_at timestamptz, p_spent_tokens bigint, p_spent_money bigint,
  p_landing_tokens bigint, p_landing_money bigint, p_flight_tokens bigint, p_flight_money bigint,
  p_asked_tokens bigint, p_asked_money bigint, p_least_tokens bigint, p_least_money bigint,
  p_spare_tokens bigint, p_spare_money bigint, p_starting boolean,
  OUT verdict text, OUT tokens bigint, OUT money bigint, OUT ahead_tokens bigint, OUT ahead_money bigint,
  OUT tight text, OUT resource text, OUT most bigint, OUT used bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
  r glidepath_fleet_runs; b glidepath_budgets; n text; line_ text[];
  spent_t bigint; spent_m bigint; firm_t bigint; firm_m bigint; hold_t bigint; hold_m bigint;
  now_t bigint; now_m bigint; alone_t bigint; alone_m bigint; least_ok boolean; alone_least boolean; room bigint;
  kept record; short text; since_ float8 := extract(epoch FROM clock_timestamp())::float8; waited boolean;
BEGIN
  SELECT * INTO r FROM glidepath_fleet_runs f WHERE f.session = p_session FOR UPDATE;
  IF NOT FOUND OR r.leg <> p_leg THEN verdict := 'fenced'; RETURN; END IF;
  line_ := r.line;
  IF p_flight_tokens = 0 AND p_flight_money = 0 THEN line_ := coalesce(glidepath_line(r.tenant, p_at), r.line); END IF;
  IF line_ <> r.line THEN  -- another day: what was not spent goes back to the old one
    spent_t := p_spent_tokens - r.base_tokens; spent_m := p_spent_money - r.base_money;
    FOREACH n IN ARRAY r.line LOOP
      UPDATE glidepath_budgets g SET tokens = g.tokens + spent_t - r.tokens, money = g.money + spent_m - r.money,
        firm_tokens = g.firm_tokens + spent_t - r.firm_tokens, firm_money = g.firm_money + spent_m - r.firm_money
      WHERE g.name = n;
    END LOOP;
    r.base_tokens := p_spent_tokens; r.base_money := p_spent_money; r.line := line_;
    r.tokens := 0; r.money := 0; r.firm_tokens := 0; r.firm_money := 0;
  END IF;
  spent_t := p_spent_tokens - r.base_tokens; spent_m := p_spent_money - r.base_money;
  firm_t := spent_t + p_landing_tokens; firm_m := spent_m + p_landing_money;
  hold_t := firm_t + p_flight_tokens; hold_m := firm_m + p_flight_money;
  FOREACH n IN ARRAY line_ LOOP
    SELECT * INTO b FROM glidepath_budgets g WHERE g.name = n FOR UPDATE;
    IF p_starting AND (b.max_tokens - b.firm_tokens + r.firm_tokens - hold_t < p_asked_tokens
        OR b.max_money - b.firm_money + r.firm_money - hold_m < p_asked_money) THEN
      SELECT * INTO kept FROM glidepath_kept(n, p_session);
      b.firm_tokens := b.firm_tokens - kept.tokens; b.firm_money := b.firm_money - kept.money;
    END IF;
    IF b.max_tokens - b.tokens + r.tokens - hold_t < p_asked_tokens
        OR b.max_money - b.money + r.money - hold_m < p_asked_money THEN
      short := coalesce(short, n);
    END IF;
    IF b.max_tokens IS NOT NULL THEN
      now_t := least(now_t, b.max_tokens - b.tokens + r.tokens - hold_t);
      room := b.max_tokens - b.firm_tokens + r.firm_tokens - hold_t;
      IF alone_t IS NULL OR room < alone_t THEN
        alone_t := room;
        IF room < p_least_tokens THEN
          tight := n; resource := 'tokens'; most := b.max_tokens; used := b.firm_tokens;
        END IF;
      END IF;
    END IF;
    IF b.max_money IS NOT NULL THEN
      now_m := least(now_m, b.max_money - b.money + r.money - hold_m);
      room := b.max_money - b.firm_money + r.firm_money - hold_m;
      IF alone_m IS NULL OR room < alone_m THEN
        alone_m := room;
        IF room < p_least_money THEN
          tight := n; resource := 'money'; most := b.max_money; used := b.firm_money;
        END IF;
      END IF;
    END IF;
  END LOOP;
  least_ok := coalesce(p_least_tokens <= now_t, true) AND coalesce(p_least_money <= now_m, true);
  alone_least := coalesce(p_least_tokens <= alone_t, true) AND coalesce(p_least_money <= alone_m, true);
  IF coalesce(p_asked_tokens <= now_t, true) AND coalesce(p_asked_money <= now_m, true) THEN
    verdict := 'granted';
    tokens := hold_t + p_asked_tokens + least(p_spare_tokens, coalesce((now_t - p_asked_tokens) / 64, p_spare_tokens));
    money := hold_m + p_asked_money + least(p_spare_money, coalesce((now_m - p_asked_money) / 64, p_spare_money));
  ELSIF coalesce(p_asked_tokens <= alone_t, true) AND coalesce(p_asked_money <= alone_m, true) THEN
    verdict := 'wait';
  ELSIF least_ok THEN
    verdict := 'granted';
    tokens := hold_t + least(p_asked_tokens, now_t); money := hold_m + least(p_asked_money, now_m);
  ELSIF alone_least THEN
    verdict := 'wait';
  ELSE
    verdict := 'refused';
  END IF;
  IF p_starting AND verdict = 'granted' THEN
    SELECT coalesce(min(w.since), since_) INTO since_ FROM glidepath_waiting w WHERE w.session = p_session;
    SELECT w.tight INTO short FROM glidepath_waiting w
      JOIN glidepath_fleet_runs f ON f.session = w.session AND f.outcome IS NULL
      JOIN glidepath_workers k ON k.id = f.worker AND k.expires >= extract(epoch FROM clock_timestamp())::float8
      WHERE w.starting AND w.tight = ANY(line_) AND w.session <> p_session
        AND (w.since, w.session) < (since_, p_session) ORDER BY w.since LIMIT 1;
    IF FOUND THEN verdict := 'wait'; END IF;
  END IF;
  IF verdict = 'wait' THEN
    INSERT INTO glidepath_waiting AS w VALUES(p_session, since_, p_starting, short)
      ON CONFLICT (session) DO UPDATE SET starting = p_starting, tight = excluded.tight;
    waited := false;
  ELSE
    DELETE FROM glidepath_waiting w WHERE w.session = p_session AND w.starting;
    waited := FOUND;
    DELETE FROM glidepath_waiting w WHERE w.session = p_session;
  END IF;
  IF verdict <> 'granted' THEN  -- whoever waits holds nothing that it does not need
    tokens := greatest(spent_t, least(r.tokens, hold_t)); money := greatest(spent_m, least(r.money, hold_m));
  ELSE
    tight := NULL;
  END IF;
  firm_t := least(firm_t, tokens); firm_m := least(firm_m, money);
  FOREACH n IN ARRAY line_ LOOP
    UPDATE glidepath_budgets g SET tokens = g.tokens + tokens - r.tokens, money = g.money + money - r.money,
      firm_tokens = g.firm_tokens + firm_t - r.firm_tokens, firm_money = g.firm_money + firm_m - r.firm_money
    WHERE g.name = n;
  END LOOP;
  IF waited OR tokens < r.tokens OR money < r.money OR firm_t < r.firm_tokens OR firm_m < r.firm_money THEN
    PERFORM glidepath_tell();
  END IF;
  UPDATE glidepath_fleet_runs f SET line = line_, base_tokens = r.base_tokens, base_money = r.base_money,
    tokens = glidepath_draw_as.tokens, money = glidepath_draw_as.money, firm_tokens = firm_t, firm_money = firm_m,
    spent_tokens = spent_t, spent_money = spent_m
  WHERE f.session = p_session;
  ahead_tokens := greatest(0, alone_t + hold_t - tokens); ahead_money := greatest(0, alone_m + hold_m - money);
  tokens := tokens + r.base_tokens; money := money + r.base_money;
END $$;

-- Workers of earlier releases call this one.
CREATE OR REPLACE FUNCTION glidepath_draw(
  p_session text, p_leg bigint, p_at timestamptz, p_spent_tokens bigint, p_spent_money bigint,
  p_landing_tokens bigint, p_landing_money bigint, p_flight_tokens bigint, p_flight_money bigint,
  p_asked_tokens bigint, p_asked_money bigint, p_least_tokens bigint, p_least_money bigint,
  p_spare_tokens bigint, p_spare_money bigint,
  OUT verdict text, OUT tokens bigint, OUT money bigint, OUT ahead_tokens bigint, OUT ahead_money bigint,
  OUT tight text, OUT resource text, OUT most bigint, OUT used bigint)
LANGUAGE sql AS $$
  SELECT * FROM glidepath_draw_as(p_session, p_leg, p_at, p_spent_tokens, p_spent_money, p_landing_tokens,
    p_landing_money, p_flight_tokens, p_flight_money, p_asked_tokens, p_asked_money, p_least_tokens, p_least_money,
    p_spare_tokens, p_spare_money, false)
$$;

CREATE OR REPLACE FUNCTION glidepath_close(
  p_session text, p_leg bigint, p_spent_tokens bigint, p_spent_money bigint, p_outcome text, p_error text)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  r glidepath_fleet_runs; n text; spent_t bigint; spent_m bigint;
BEGIN
  SELECT * INTO r FROM glidepath_fleet_runs WHERE session = p_session FOR UPDATE;
  IF NOT FOUND OR r.leg <> p_leg OR r.outcome IS NOT NULL THEN RETURN false; END IF;
  DELETE FROM glidepath_waiting WHERE session = p_session;
  spent_t := greatest(0, p_spent_tokens - r.base_tokens); spent_m := greatest(0, p_spent_money - r.base_money);
  IF r.line = '{}' THEN spent_t := 0; spent_m := 0; END IF;
  FOREACH n IN ARRAY r.line LOOP
    UPDATE glidepath_budgets SET tokens = tokens + spent_t - r.tokens, money = money + spent_m - r.money,
      firm_tokens = firm_tokens + spent_t - r.firm_tokens, firm_money = firm_money + spent_m - r.firm_money
    WHERE name = n;
  END LOOP;
  UPDATE glidepath_fleet_runs SET tokens = spent_t, money = spent_m, firm_tokens = spent_t, firm_money = spent_m,
    spent_tokens = spent_t, spent_money = spent_m, outcome = p_outcome, error = p_error,
    ended = CASE WHEN p_outcome IS NULL THEN NULL ELSE extract(epoch FROM clock_timestamp())::float8 END
  WHERE session = p_session;
  IF r.line <> '{}' THEN PERFORM glidepath_tell(); END IF;
  RETURN true;
END $$;

-- A run that cannot continue, or that no worker has touched for a while, may have spent all it holds: count it so.
CREATE OR REPLACE FUNCTION glidepath_firm(p_session text, p_silent float8, p_error text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  r glidepath_fleet_runs; n text; now_ float8 := extract(epoch FROM clock_timestamp())::float8;
BEGIN
  IF p_session IS NULL THEN
    SELECT f.* INTO r FROM glidepath_fleet_runs f JOIN glidepath_sessions s ON s.id = f.session
      WHERE f.outcome IS NULL AND (f.tokens > f.firm_tokens OR f.money > f.firm_money)
        AND greatest(s.expires, s.updated) < now_ - p_silent LIMIT 1 FOR UPDATE OF f SKIP LOCKED;
  ELSE
    SELECT * INTO r FROM glidepath_fleet_runs WHERE session = p_session AND outcome IS NULL FOR UPDATE;
  END IF;
  IF NOT FOUND THEN RETURN false; END IF;
  DELETE FROM glidepath_waiting WHERE session = r.session;
  FOREACH n IN ARRAY r.line LOOP
    UPDATE glidepath_budgets SET firm_tokens = firm_tokens + r.tokens - r.firm_tokens,
      firm_money = firm_money + r.money - r.firm_money WHERE name = n;
  END LOOP;
  UPDATE glidepath_fleet_runs SET firm_tokens = tokens, firm_money = money, spent_tokens = tokens, spent_money = money,
    outcome = CASE WHEN p_error IS NOT NULL THEN 'failed' END, error = p_error,
    ended = CASE WHEN p_error IS NOT NULL THEN now_ END WHERE session = r.session;
  PERFORM glidepath_tell();
  RETURN true;
END $$;

-- A call takes the next free slot at once and waits for it: first come, first served, and no polling.
-- Slots are counted in twentieths of a period, so that people can see how much of a rate is used.
CREATE OR REPLACE FUNCTION glidepath_slot(p_model text, p_tokens bigint) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
  r glidepath_rates; now_ float8; wait float8 := 0; at_ float8; part float8;
BEGIN
  SELECT * INTO r FROM glidepath_rates WHERE model = p_model FOR UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  now_ := extract(epoch FROM clock_timestamp())::float8;
  IF r.requests IS NOT NULL THEN
    at_ := greatest(r.next_request, now_);
    wait := at_ - (r.burst - 1) * r.per / r.requests - now_;
    r.next_request := at_ + r.per / r.requests;
  END IF;
  IF r.tokens IS NOT NULL THEN
    at_ := greatest(r.next_tokens, now_);
    wait := greatest(wait, at_ - now_);
    r.next_tokens := at_ + p_tokens * r.per / r.tokens;
  END IF;
  UPDATE glidepath_rates SET next_request = r.next_request, next_tokens = r.next_tokens WHERE model = p_model;
  wait := greatest(0, wait);
  part := r.per / 20;
  DELETE FROM glidepath_rate_uses WHERE model = p_model AND at < now_ - r.per - part;
  INSERT INTO glidepath_rate_uses AS u VALUES(p_model, floor((now_ + wait) / part) * part, 1, p_tokens)
    ON CONFLICT (model, at) DO UPDATE SET requests = u.requests + 1, tokens = u.tokens + p_tokens;
  RETURN wait;
END $$;

-- Removing a session also removes its run in the fleet and in the engine, so that its id can be used again.
CREATE OR REPLACE FUNCTION glidepath_session_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM glidepath_fleet_runs WHERE session = OLD.id AND outcome IS NOT NULL;
  IF FOUND THEN PERFORM glidepath_forget(OLD.id); END IF;
  RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS glidepath_session_gone ON glidepath_sessions;
CREATE TRIGGER glidepath_session_gone AFTER DELETE ON glidepath_sessions
  FOR EACH ROW EXECUTE FUNCTION glidepath_session_gone();
