"""Many workers on one PostgreSQL, fed by DBOS queues: kill a worker, and another finishes its runs.

`Worker` executes runs, `Fleet` submits them and sets what they may spend. Needs the extra `glidepath[dbos]`.
"""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.apps.fleet.fleet import Fleet
from glidepath.apps.fleet.fleet_ledger import FleetAccount, Quota
from glidepath.apps.fleet.standing import FleetRun, FleetStatus
from glidepath.apps.fleet.worker import Worker

__all__ = ["Fleet", "FleetAccount", "FleetRun", "FleetStatus", "Quota", "Worker"]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.apps.fleet.budget import FleetBudget as FleetBudget
    from glidepath.apps.fleet.fleet import Fleet as Fleet
    from glidepath.apps.fleet.fleet_ledger import FleetLedger as FleetLedger
    from glidepath.apps.fleet.worker_flight import FleetStore as FleetStore, WorkerFlight as WorkerFlight

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        budget=("FleetBudget",),
        fleet=("Fleet",),
        fleet_ledger=("FleetLedger",),
        worker_flight=("FleetStore", "WorkerFlight"),
    )
