"""From a device or a module to tables and graphs; this room knows torch."""
