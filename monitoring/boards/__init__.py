"""The dashboards, in the order of the pages."""

from monitoring.boards import fleet, graphs, operator, requests, serving, warmup
from monitoring.boards.row import Board

BOARDS: tuple[Board, ...] = (
    graphs.BOARD,
    serving.BOARD,
    requests.BOARD,
    operator.BOARD,
    fleet.BOARD,
    warmup.BOARD,
)
