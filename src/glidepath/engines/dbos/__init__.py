"""Many workers on one PostgreSQL, fed by DBOS queues: kill a worker, and another finishes its runs.

`Worker` executes runs, `Fleet` submits them and sets what they may spend. Needs the extra `glidepath[dbos]`.
"""

from glidepath.engines.dbos.fleet import Fleet
from glidepath.engines.dbos.fleet_ledger import FleetAccount, Quota
from glidepath.engines.dbos.standing import FleetRun, FleetStatus
from glidepath.engines.dbos.worker import Worker

__all__ = ["Fleet", "FleetAccount", "FleetRun", "FleetStatus", "Quota", "Worker"]
