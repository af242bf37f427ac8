"""JSON of any shape, looked into by paths: field names from the outside in.

A part ``[name=node]`` is an element of a list: the first whose field ``name`` says ``node``.
"""

from typing import Any, Final

Path = tuple[str, ...]
ABSENT: Final = ()
"""Where a path leads that leads nowhere."""


def selector(part: str) -> tuple[str, str] | None:
    """Field and value of a part that selects an element of a list, None if *part* is a field's name."""
    if not (part.startswith("[") and part.endswith("]")):
        return None
    field, _, value = part[1:-1].partition("=")
    return field, value


def located(tree: object, path: Path) -> tuple[Path, object]:
    """*path* with places in lists as numbers, and what stands there; ``ABSENT`` and None if nothing does."""
    found: list[str] = []
    for part in path:
        chosen = selector(part)
        if chosen is not None:
            place, tree = _element(tree, *chosen)
            found.append(place)
        else:
            tree = tree.get(part) if isinstance(tree, dict) else None
            found.append(part)
        if tree is None:
            return ABSENT, None
    return tuple(found), tree


def at(tree: object, path: Path) -> object:
    """What stands at *path*, None if nothing does."""
    return located(tree, path)[1]


def _element(tree: object, field: str, value: str) -> tuple[str, object]:
    for place, one in enumerate(tree if isinstance(tree, list) else ()):
        if isinstance(one, dict) and one.get(field) == value:
            return str(place), one
    return "", None


def add_missing(tree: object, path: Path, *, key: str, item: dict[str, Any]) -> bool | None:
    """Append *item* to the list at *path*, unless an element has the same *key*.

    Whether the list was there; None if nothing was done, also for want of the object that would hold it.
    """
    parent, field = at(tree, path[:-1]), path[-1]
    if not isinstance(parent, dict) or at(parent, (field, f"[{key}={item.get(key)}]")) is not None:
        return None
    there = isinstance(parent.get(field), list)
    parent[field] = [*(parent[field] if there else ()), item]
    return there
