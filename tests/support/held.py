"""How much an object holds: to show that what went left nothing behind."""

import gc
import types
from collections import deque

_ELSEWHERE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType)
_CONTAINERS = (dict, list, set, frozenset, deque, tuple)


def held(root: object) -> dict[str, int]:
    """Entries of all containers that *root* reaches, by the kinds of objects on the way to them.

    Code and classes are not followed, so what modules keep (caches of functions) does not count.
    """
    found: dict[str, int] = {}
    seen, left = {id(root)}, [(root, type(root).__name__)]
    while left:
        thing, way = left.pop()
        if isinstance(thing, _CONTAINERS):
            found[way] = found.get(way, 0) + len(thing)
        for inner in gc.get_referents(thing):
            if not isinstance(inner, _ELSEWHERE) and id(inner) not in seen:
                seen.add(id(inner))
                kind = type(inner).__name__
                left.append((inner, way if isinstance(inner, _CONTAINERS) else f"{way[-200:]}.{kind}"))
    return found
