"""Files into place: in parts and in parallel, resumed after any end, checked before they get their names."""
