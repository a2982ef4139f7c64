import numpy as np
import pytest

from sparsetoken import check_loss, get_loss, loss_names


@pytest.mark.parametrize("name", loss_names())
def test_every_loss_keeps_the_rules(name: str) -> None:
    check_loss(get_loss(name))
    step = np.array([1e-12, 1.0, 1e12])
    assert np.all(np.isfinite(get_loss(name).prox(np.array([-1e12, 0.0, 1e12]), step)))
