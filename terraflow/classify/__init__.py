"""What a request contains: normalisation, scan, detectors. Pure, linear in its input, fails closed."""
