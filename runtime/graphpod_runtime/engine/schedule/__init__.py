"""Which sequences run in the next pass. No device, no torch."""
