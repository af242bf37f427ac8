"""``python -m tests.bench NAME [options]``: run the benchmark of that name."""

import importlib
import pkgutil
import sys

import tests.bench


def main(argv: list[str]) -> int:
    names = sorted(module.name for module in pkgutil.iter_modules(tests.bench.__path__) if module.name[0] != "_")
    if not argv or argv[0] not in names:
        print(f"usage: python -m tests.bench {{{','.join(names)}}} [--json FILE]", file=sys.stderr)
        return 2
    answer: int | None = importlib.import_module(f"tests.bench.{argv[0]}").main(argv[1:])
    return answer or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
