"""What a benchmark can see: against statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.power import NormalIndPower  # type: ignore[import-untyped]

from tasks.statistics.power import detectable_effect


def test_the_detectable_effect_has_the_power_that_it_promises() -> None:
    # statsmodels: power of a z test with one sample (ratio 0) at that effect
    effect = detectable_effect(1 / np.sqrt(250), power=0.8)
    assert NormalIndPower().power(effect, nobs1=250, alpha=0.05, ratio=0) == pytest.approx(0.8, abs=1e-5)


@pytest.mark.parametrize("wrong", [{"power": 1.0}, {"alpha": 0.0}, {"standard_error": -1.0}])
def test_impossible_powers_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"power and alpha must lie in \(0, 1\)"):
        detectable_effect(**{"standard_error": 1.0, **wrong})
