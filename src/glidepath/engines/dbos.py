"""Many workers on one PostgreSQL, fed by DBOS queues: kill a worker, and another finishes its runs."""

from glidepath.apps.fleet import Fleet, FleetAccount, FleetRun, FleetStatus, Quota, Worker

__all__ = ["Fleet", "FleetAccount", "FleetRun", "FleetStatus", "Quota", "Worker"]
