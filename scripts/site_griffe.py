"""What the reference shows of an attribute: its name and type, not the expression in `__init__` that fills it."""

import griffe


class PlainAttributes(griffe.Extension):
    """`limits: Limits` instead of `limits = limits`, and no private name as a value."""

    def on_class_members(self, *, cls: griffe.Class, **_: object) -> None:
        """Type the attributes that `__init__` fills from its parameters."""
        made = cls.members.get("__init__")
        types = {one.name: one.annotation for one in made.parameters} if isinstance(made, griffe.Function) else {}
        for one in cls.members.values():
            if isinstance(one, griffe.Attribute) and one.labels == {"instance-attribute"}:
                one.annotation = one.annotation or types.get(one.name)
                one.value = None

    def on_module_members(self, *, mod: griffe.Module, **_: object) -> None:
        """Leave out a value that nobody could write."""
        for one in mod.members.values():
            if isinstance(one, griffe.Attribute) and str(one.value or "").startswith("_"):
                one.value = None
