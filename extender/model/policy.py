"""Every switch of the engine in one frozen value: no global flags.

``Policy.reference()`` agrees with the reference scheduler in every decision. The default differs only where the
reference is unsafe or nondeterministic; each field that differs names its ADR.
"""

from enum import StrEnum

import msgspec


class FairSharingStrategy(StrEnum):
    """When a preemptor may take a workload from the other side of their lowest common cohort."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


DEFAULT_STRATEGIES = (
    FairSharingStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
    FairSharingStrategy.LESS_THAN_INITIAL_SHARE,
)


class Policy(msgspec.Struct, frozen=True):
    """How the engine decides.

    ``fair_sharing``: strategies in the order in which they are tried; empty: classical preemption and ordering.
    ``victims_hold_room``: nobody starts in room that victims still occupy (ADR 0010). ``hold_for_preemptor``: freed
    quota is kept for the preemptor until it is in (ADR 0011). ``fit_means_all``: a flavor fits only if every resource
    does (ADR 0012). ``fair_fill_back``: a victim returns only if the others stay fair game (ADR 0013).
    ``loops_end``: nobody is taken if that closes a circle of preemptions (ADR 0018).
    """

    fair_sharing: tuple[FairSharingStrategy, ...] = ()
    victims_hold_room: bool = True
    hold_for_preemptor: bool = True
    fit_means_all: bool = True
    fair_fill_back: bool = True
    loops_end: bool = True

    @classmethod
    def reference(cls, *, fair_sharing: bool) -> "Policy":
        """The policy that agrees with the reference scheduler."""
        return cls(
            fair_sharing=DEFAULT_STRATEGIES if fair_sharing else (),
            victims_hold_room=False,
            hold_for_preemptor=False,
            fit_means_all=False,
            fair_fill_back=False,
            loops_end=False,
        )
