from itertools import accumulate, islice

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import kernels as sklearn_kernels

from skvbgp.kernel_selection import kernel_grammar
from skvbgp.kernel_selection._description import describe
from skvbgp.kernel_selection._grammar import count_expressions, expressions
from skvbgp.kernels import (
    RBF,
    Constant,
    IntegratedOU,
    Linear,
    Matern,
    Periodic,
    RationalQuadratic,
    White,
    Wiener,
)
from skvbgp.kernels._compose import list_terms


@pytest.mark.parametrize(("depth", "n"), [(1, 4), (2, 24), (3, 144)])
def test_number_of_kernels(depth, n):
    kernels = kernel_grammar(depth)
    assert len(kernels) == len({name for name, _ in kernels}) == n


@pytest.mark.parametrize("n_base", [1, 2, 5])
def test_kernels_are_counted_without_being_made(n_base):
    totals = list(islice(accumulate(count_expressions(n_base)), 4))
    assert totals == [len(expressions(n_base, depth)) for depth in (1, 2, 3, 4)]


def test_more_kernels_than_can_be_held_are_refused():
    with pytest.raises(ValueError, match=r"less than 8 with 4 base .* 5,292,052 kernels.* got 9"):
        kernel_grammar(9)
    with pytest.raises(ValueError, match="less than"):
        kernel_grammar(10**9, base=("SE",))


def test_depth_four_closes_the_grammar_under_both_operations():
    names = {name for name, _ in kernel_grammar(4, base=("LIN", "PER"))}
    assert "LIN * PER + LIN * PER" in names  # no kernel of depth 3 extended by a base kernel
    assert "(LIN + PER) * (LIN + PER)" in names


def test_names_say_what_the_kernels_compute():
    base = {"SE": RBF(), "RQ": RationalQuadratic(), "LIN": Linear(), "PER": Periodic()}
    X = np.array([[0.0], [0.3], [2.0]])
    for name, kernel in kernel_grammar():  # all amplitudes are 1
        values = {key: k(X) for key, k in base.items()}
        assert_allclose(kernel(X), eval(name, {}, values))


def test_kernels_of_scikit_learn_compose():
    kernels = dict(kernel_grammar(2, base=("LIN", ("M32", sklearn_kernels.Matern(nu=1.5)))))
    assert repr(kernels["LIN * M32"]) == (
        "Linear(length_scale=1.0, offset=1.0) * Matern(length_scale=1.0, isotropic=True)"
    )


def test_terms_of_a_sum_get_an_amplitude_unless_all_of_them_has_one():
    scaled = Constant() * RBF()
    base = ("PER", ("mine", scaled), ("two", scaled + scaled), ("one", scaled + RBF()))
    kernels = dict(kernel_grammar(2, base))
    for name, n in (("PER + PER", 2), ("PER + mine", 2), ("PER + two", 3), ("PER + one", 4)):
        leaves = [leaf for term in list_terms(kernels[name]) for leaf in term]
        assert sum(isinstance(leaf, Constant) for leaf in leaves) == n


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "depth"),
        ((2, ("SE", "SE")), "different"),
        ((2, ()), "different"),
        ((1, ("XX",)), "XX"),
    ],
)
def test_wrong_grammar(arguments, message):
    with pytest.raises(ValueError, match=message):
        kernel_grammar(*arguments)


def test_matern_kernels_are_base_kernels_by_name():
    kernels = dict(kernel_grammar(2, base=("M12", "M32", "M52", "PER")))
    assert len(kernels) == 4 + 2 * 10
    assert [kernels[name].kernels[-1].nu for name in ("M12", "M32", "M52")] == [0.5, 1.5, 2.5]
    quasi_periodic = kernels["M32 * PER"]
    assert describe(quasi_periodic, np.ones(1))[0].startswith("a periodic part of period 1")


def test_products_are_multiplied_out():
    kernel = Linear() * (Constant() * RBF() + Periodic())
    names = [[type(leaf).__name__ for leaf in term] for term in list_terms(kernel)]
    assert names == [["Linear", "Constant", "RBF"], ["Linear", "Periodic"]]


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (Linear(), "a linear trend"),
        (Linear() * Linear(), "a polynomial trend of degree 2"),
        (RBF(20.0), "a smooth trend of length scale 20"),
        (RBF(0.5), "a short-term smooth part of length scale 0.5"),
        (Periodic(period=1.5), "a periodic part of period 1.5"),
        (Periodic(period=9.0), "a periodic part of period 9 (barely repeated)"),
        (
            RBF(2.0) * Periodic(period=1.5) * Linear(),
            "a periodic part of period 1.5 whose shape changes over length scale 2, "
            "with linearly changing amplitude",
        ),
        (Constant(2.0), "a constant"),
        (Matern(20.0, nu=0.5), "a rough trend of length scale 20"),
        (Matern(0.5, nu=1.5), "a short-term smooth part of length scale 0.5"),
        (
            RBF(20.0) * Linear() * Linear(),
            "a smooth trend of length scale 20, with an amplitude that is a polynomial of degree 2",
        ),
        (Wiener(), "a level that wanders"),
        (Wiener(integrated=True), "a trend that wanders"),
        (IntegratedOU(3.0), "a level whose slopes last over length scale 3"),
        (White(), "noise"),
    ],
)
def test_words(kernel, words):
    assert describe(kernel, np.array([10.0])) == [words]
