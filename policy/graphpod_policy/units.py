"""Amounts as people read them."""

_UNITS = (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))


def size(amount: int) -> str:
    """Bytes that were measured or estimated: 15.3 GiB, 476 MiB."""
    for unit, shift in _UNITS[1:]:
        if amount >= 1 << shift:
            scaled = amount / (1 << shift)
            return f"{scaled:.{0 if scaled >= 100 else 1}f} {unit}B"
    return f"{amount} bytes"


def as_quantity(amount: int) -> str:
    """Bytes that somebody wrote, as a quantity of Kubernetes: 200Gi, 1500M."""
    for unit, shift in _UNITS:
        if amount and not amount % (1 << shift):
            return f"{amount >> shift}{unit}"
    for unit, power in (("G", 9), ("M", 6)):
        if amount and not amount % 10**power:
            return f"{amount // 10**power}{unit}"
    return str(amount)


def bytes_of(quantity: str) -> int:
    """The reverse: bytes of a quantity, or of a plain number. ValueError for what is neither."""
    scales = {unit: 1 << shift for unit, shift in _UNITS} | {"T": 10**12, "G": 10**9, "M": 10**6, "": 1}
    digits = quantity.rstrip("TGMKi")
    if not (digits.isascii() and digits.isdigit()) or (unit := quantity[len(digits) :]) not in scales:
        raise ValueError(f"{quantity!r} is not a number of bytes, as 512Mi, 32Gi or 1500M")
    return int(digits) * scales[unit]


def count(number: int) -> str:
    """A count: 16384, 983k, 1.2M."""
    if number < 100_000:
        return str(number)
    return f"{number / 1000:.0f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def duration(seconds: float) -> str:
    """0.3 s, 286 s, 69 min, 2.3 h, 168 h."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.1f}".removesuffix(".0") + " h"
    return f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
