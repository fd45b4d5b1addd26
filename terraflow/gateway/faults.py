"""A fault nobody foresaw, as the log may hold it: its type and place. Its text may hold a request's content."""

from __future__ import annotations


def place_of(fault: BaseException) -> str:
    """Type, function and line, of the innermost frame."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
    return f"{type(fault).__name__}{where}"
