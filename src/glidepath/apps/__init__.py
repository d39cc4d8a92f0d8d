"""What people run: the command line, the server with its deck, the fleet, telemetry."""
