"""What a condition can say: types, reasons and next steps, as tables."""
