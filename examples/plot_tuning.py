"""
Which settings? A search by Thompson sampling
=============================================

A support vector machine has three settings, and each trial of them is a
cross-validation: here a fraction of a second, with real models an hour. After
thirty trials somebody has to decide. A Gaussian process of the trials so far
says where to try next: *draw* one function from its posterior and take the
place where the draw is least. Where the model is unsure its draws differ, so
that unknown places are tried as well, and no constant has to be tuned for it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from skvbgp import VBGPRegressor

#: Half of the ten inputs do not matter.
X, y = make_friedman1(200, n_features=10, noise=0.5, random_state=0)
FOLDS = KFold(5, shuffle=True, random_state=0)
#: Decimal logarithms of C, gamma and epsilon: least and largest.
LOW, HIGH = np.array([-1.0, -4.0, -2.0]), np.array([4.0, 1.0, 1.0])
N_FIRST, N_TRIALS = 6, 30


def make_machine(settings):
    C, gamma, epsilon = 10.0**settings
    return make_pipeline(
        StandardScaler(), SVR(C=C, gamma=gamma, epsilon=epsilon)
    )


def try_out(settings):
    """Logarithm of the root mean squared error of a cross-validation."""
    scores = cross_val_score(
        make_machine(settings),
        X,
        y,
        cv=FOLDS,
        scoring="neg_root_mean_squared_error",
    )
    return np.log(-scores.mean())


# %%
# The search. The first settings are random; afterwards a draw decides, from a
# thousand random candidates. ``partial_fit`` adds one trial at a time. The
# model is of the logarithm of the error, as bad settings err many times more.


def propose(rng, n):
    return rng.uniform(LOW, HIGH, (n, 3))


def search_by_thompson(seed):
    rng = np.random.default_rng(seed)
    tried = propose(rng, N_FIRST)
    errors = np.array([try_out(settings) for settings in tried])
    model = VBGPRegressor(random_state=0).partial_fit(tried, errors)
    while len(errors) < N_TRIALS:
        candidates = propose(rng, 1000)
        draw = model.sample_function(1, random_state=len(errors))
        new = candidates[[np.argmin(draw(candidates)[:, 0])]]
        errors = np.append(errors, try_out(new[0]))
        tried = np.vstack([tried, new])
        model.partial_fit(new, errors[-1:])
    return tried, errors, model


def search_at_random(seed):
    settings = propose(np.random.default_rng(seed), N_TRIALS)
    return np.array([try_out(one) for one in settings])


SEEDS = range(3)
found = [search_by_thompson(seed) for seed in SEEDS]
random = [search_at_random(seed) for seed in SEEDS]

# %%
# On the left what matters to whoever pays for trials. On the right the error
# that the first search expects at the best epsilon, and where it has tried.

best_so_far = {
    "Thompson sampling": [
        np.minimum.accumulate(np.exp(errors)) for _, errors, _ in found
    ],
    "at random": [np.minimum.accumulate(np.exp(errors)) for errors in random],
}
tried, errors, model = found[0]
best = tried[np.argmin(errors)]
C, gamma = np.meshgrid(
    np.linspace(LOW[0], HIGH[0], 50), np.linspace(LOW[1], HIGH[1], 50)
)
places = np.column_stack([C.ravel(), gamma.ravel(), np.full(C.size, best[2])])
expected = np.exp(model.predict(places)).reshape(C.shape)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, curves in best_so_far.items():
    (line,) = left.plot(
        range(1, N_TRIALS + 1), np.mean(curves, axis=0), label=name
    )
    for curve in curves:
        left.plot(
            range(1, N_TRIALS + 1), curve, color=line.get_color(), lw=0.5
        )
left.set(xlabel="trials", ylabel="least error so far")
left.legend()
image = right.contourf(C, gamma, expected, levels=20)
fig.colorbar(image, ax=right, label="expected error")
right.scatter(*tried[:, :2].T, c="white", edgecolors="black", s=20)
right.scatter(*best[:2], marker="*", c="red", s=150, label="chosen")
right.set(xlabel="log10 C", ylabel="log10 gamma")
right.legend()
plt.show()

# %%
# The decision. The model expects at the chosen settings what was measured
# there, give or take its standard deviation, and says what the best of
# ten thousand other settings promises. Once that is hardly less, further
# trials do not pay.

others = propose(np.random.default_rng(9), 10_000)
log_error, std = model.predict([best], return_std=True, include_noise=False)
print("C, gamma, epsilon:", np.round(10.0**best, 4))
print(f"measured {np.exp(errors.min()):.2f}", end=", ")
print(f"expected {np.exp(log_error[0]):.2f} +- {100.0 * std[0]:.0f} %")
print(f"elsewhere {np.exp(model.predict(others).min()):.2f} at least")
for name, curves in best_so_far.items():
    print(f"{name}: {np.mean([curve[-1] for curve in curves]):.2f}")
