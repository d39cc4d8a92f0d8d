"""Many workers on one PostgreSQL, fed by DBOS queues: kill a worker, and another finishes its runs.

`Worker` flies runs, `Fleet` submits them and says what may be spent. Needs the extra `glidepath[dbos]`.
"""

from glidepath.engines.dbos.fleet import Fleet
from glidepath.engines.dbos.fleet_ledger import FleetAccount as FleetAccount
from glidepath.engines.dbos.fleet_ledger import Quota
from glidepath.engines.dbos.standing import FleetRun, FleetStatus
from glidepath.engines.dbos.worker import Worker

__all__ = ["Account", "Fleet", "FleetRun", "FleetStatus", "Quota", "Worker"]
