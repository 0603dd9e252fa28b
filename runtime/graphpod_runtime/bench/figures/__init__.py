"""What is measured, of which variants, and what the hardware allows: values and arithmetic."""
