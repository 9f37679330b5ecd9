"""What a site's own runs teach: measurements, fixed times and lengths from its history."""
