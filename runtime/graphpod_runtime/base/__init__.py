"""What every room of the engine may import: errors, shapes, nested values, opaque calls."""
