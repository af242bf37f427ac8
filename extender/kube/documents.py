"""YAML as people mean it: a key that stands twice in one mapping is an error, where parsers silently take the last."""

from typing import Any

import yaml


class _Strict(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # a name or None; its stubs say otherwise
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} stands twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError):  # the library's way to say so of 2026-02-31, or of !!int x
            kind = node.tag.rpartition(":")[2]
            raise yaml.MarkedYAMLError(problem=f"{node.value!r} is no {kind}", problem_mark=node.start_mark) from None


def read_documents(text: str | bytes) -> list[Any]:
    """The documents in *text*, without empty ones.

    Raises: yaml.YAMLError, with line and column; UnicodeDecodeError.
    """
    try:
        return [one for one in yaml.load_all(text, _Strict) if one is not None]
    except RecursionError:
        raise yaml.YAMLError("is nested too deeply") from None
