"""Many workers on one PostgreSQL, fed by DBOS queues: kill a worker, and another finishes its runs.

`Worker` executes runs, `Fleet` submits them and sets what they may spend. Needs the extra `glidepath[dbos]`.
"""

from glidepath.apps.fleet.fleet import Fleet
from glidepath.apps.fleet.fleet_ledger import FleetAccount, Quota
from glidepath.apps.fleet.standing import FleetRun, FleetStatus
from glidepath.apps.fleet.worker import Worker

__all__ = ["Fleet", "FleetAccount", "FleetRun", "FleetStatus", "Quota", "Worker"]
