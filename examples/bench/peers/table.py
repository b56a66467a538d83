"""Records as Markdown tables. Also a command: table.py [--all] [RESULTS]"""

import json
import os
import sys

from workloads import ALL, PEERS

# Where other programs used more CPUs than this, a time is marked with *.
OTHERS = 0.3
# Where the two times of tfc, before and after the peers, differ by more, it is marked with ~.
DRIFT = 1.1

NAMES = {"tfc": "tfc", **{peer: name for peer, (name, _) in PEERS.items()}}


class Cell:
    """What a peer needs for a workload on some threads: the least of its times."""

    def __init__(self):
        self.rounds = {}  # by way
        self.others = 0.0
        self.notes = []

    def add(self, record):
        if "note" in record:
            self.notes.append(f"{record['way']}: {record['note']}")
        else:
            self.rounds.setdefault(record["way"], []).append(record["ms"])
            self.others = max(self.others, record["others"])

    @property
    def ms(self):
        return min((ms for times in self.rounds.values() for ms in times), default=None)

    def text(self):
        if self.ms is None:
            return "failed" if self.notes else ""
        fastest = min(self.rounds.values(), key=min)
        drift = "~" if max(fastest) > DRIFT * min(fastest) else ""
        return milliseconds(self.ms) + drift + ("*" if self.others > OTHERS else "")


def milliseconds(ms):
    return f"{ms:.3g}" if ms < 1000 else f"{ms:.0f}"


def read(path):
    """The cells of each workload by (peer, threads), of the newest run that timed it."""
    newest = {}
    with open(path) as file:
        for line in file:
            record = json.loads(line)
            run, cells = newest.get(record["workload"], ("", {}))
            if record["run"] > run:
                run, cells = record["run"], {}
            cells.setdefault((record["peer"], record["threads"]), Cell()).add(record)
            newest[record["workload"]] = run, cells
    return {w: newest[w.name][1] for w in ALL if w.name in newest}


def row(out, *cells):
    print("| " + " | ".join(cells) + " |", file=out)


def head(out, *cells):
    row(out, *cells)
    print("|" + "---|" * len(cells), file=out)


def against_best(results, threads, out):
    """tfc beside the best peer, a row for each workload."""
    titles = [f"{title}, {t}" for t in threads for title in ("tfc", "best peer", "ratio")]
    head(out, "workload", *titles, "goal")
    met = missed = 0
    for workload, cells in results.items():
        columns = []
        for count in threads:
            ours = cells.get(("tfc", count), Cell())
            peers = [(c.ms, p, c) for (p, t), c in cells.items() if p != "tfc" and t == count and c.ms]
            best = min(peers, key=lambda peer: peer[0], default=None)
            ratio = ours.ms / best[0] if best and ours.ms else None
            columns += [ours.text(), f"{best[2].text()} {NAMES[best[1]]}" if best else ""]
            columns += [f"{ratio:.2f}" if ratio else ""]
            if count == 2 and ratio:
                met, missed = met + (ratio <= workload.goal), missed + (ratio > workload.goal)
        row(out, workload.title, *columns, f"{workload.goal}")
    print("\nMilliseconds of a call by the number of threads, the least of many.", file=out)
    if met + missed:
        print(f"{met} of {met + missed} rows meet their goal, which is for 2 threads.", file=out)


def all_peers(results, threads, out):
    peers = [p for p in NAMES if any(p == peer for cells in results.values() for peer, _ in cells)]
    for count in threads:
        print(f"\n{count} thread{'s' if count > 1 else ''}, milliseconds:\n", file=out)
        head(out, "workload", *(NAMES[p] for p in peers))
        for workload, cells in results.items():
            row(out, workload.title, *(cells.get((p, count), Cell()).text() for p in peers))


def footnotes(results, out):
    cells = [cell for of in results.values() for cell in of.values()]
    text = " ".join(cell.text() for cell in cells)
    if "~" in text:
        print("~ tfc's times before and after the peers differ by more than 10 %.", file=out)
    if "*" in text:
        print(f"\\* Other programs used more than {OTHERS} CPUs meanwhile.", file=out)
    for workload, of in results.items():
        for (_, count), cell in of.items():
            for note in dict.fromkeys(cell.notes):
                print(f"- {workload.name} on {count}, {note}", file=out)


def show(path, with_all=False, only=None, out=sys.stdout):
    """Prints the tables of the workloads in `only`, or of all."""
    results = {w: c for w, c in read(path).items() if only is None or w in only}
    threads = sorted({count for cells in results.values() for _, count in cells})
    against_best(results, threads, out)
    footnotes(results, out)
    if with_all:
        all_peers(results, threads, out)


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--all"]
    path = arguments[0] if arguments else os.path.join("target", "peers", "results.jsonl")
    show(path, "--all" in sys.argv)
