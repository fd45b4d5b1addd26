"""The process: settings, telemetry, wiring, and the HTTP server around the gateway."""
