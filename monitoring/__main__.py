"""`python -m monitoring`: write the files that are made from the tables, or draw the dashboards of a Prometheus."""

import argparse
from pathlib import Path

from monitoring.boards import BOARDS, grafana
from monitoring.boards.asking import NoPrometheus
from monitoring.rules import file, page

ROOT = Path(__file__).resolve().parents[1]


def files() -> dict[str, str]:
    """Every file, by its path in the repository."""
    boards = {f"charts/graphpod/files/dashboards/{board.name}.json": grafana.render(board) for board in BOARDS}
    return {"charts/graphpod/files/rules.yaml": file.render(), file.PAGE: page.render(), **boards}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m monitoring", description=__doc__)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    draw = actions.add_parser("draw", help="one picture a dashboard, with the data of a Prometheus")
    draw.add_argument("--prometheus", required=True, metavar="URL")
    draw.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    draw.add_argument("--minutes", type=float, default=15, help="of data (%(default)s)")
    draw.add_argument("--scrape", type=float, default=30, metavar="SECONDS", help="between two scrapes (%(default)s)")
    asked = parser.parse_args()
    if asked.action == "draw":
        from monitoring.boards.picture import draw_all  # needs matplotlib, which the files do not

        try:
            draw_all(asked.prometheus, asked.out, asked.minutes * 60, asked.scrape)
        except NoPrometheus as error:
            parser.exit(2, f"error: {error}; check --prometheus\n")
        return
    for name, text in files().items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text)


if __name__ == "__main__":
    main()
