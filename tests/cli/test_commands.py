"""Each command, end to end on small files."""

import io
import os
import pty
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from qaffde import QAFFDE, QAFFDEOutlierDetector, Real, __version__, load
from qaffde.cli.app import COMMANDS, app
from tests.cli.conftest import SMALL


def small(frame):
    return QAFFDE(32, 0.5, base_measure="gaussian", random_state=0).fit(frame)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".feather", ".npy", ".npz"])
def test_fit_and_score_every_format(suffix, qaffde, frame, write, tmp_path):
    data, out = write(frame, tmp_path / f"data{suffix}"), tmp_path / f"scored{suffix}"
    fitted = qaffde("fit", data, "-o", tmp_path / "m", *SMALL, "--json")
    assert fitted.code == 0, fitted.err
    assert fitted.json["rows"] == 200
    assert fitted.json["base_measure"] == "gaussian"
    scored = qaffde("score", tmp_path / "m", data, "-o", out)
    assert scored.code == 0, scored.err
    expected = small(frame).score_samples(frame)
    match suffix:
        case ".npy":
            found = np.load(out)[:, 2]
        case ".npz":
            found = np.load(out)["log_density"]
        case ".parquet":
            found = pd.read_parquet(out)["log_density"]
        case ".feather":
            found = pd.read_feather(out)["log_density"]
        case _:
            found = pd.read_csv(out, sep="\t" if suffix == ".tsv" else ",")["log_density"]
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_standard_input_and_output(qaffde, frame, model, tmp_path):
    text = frame.to_csv(index=False)
    assert qaffde("fit", "-", "-o", tmp_path / "m", *SMALL, input=text).code == 0
    scored = qaffde("score", model, "-", input=text)
    table = pd.read_csv(io.StringIO(scored.out))
    assert list(table) == ["x", "y", "log_density"]
    np.testing.assert_allclose(table["log_density"], small(frame).score_samples(frame))


def test_scores_keep_other_columns_and_find_theirs_by_name(qaffde, frame, model, tmp_path):
    mixed = frame[["y", "x"]].assign(name="n,\n1", log_density=0.0)
    mixed.to_csv(tmp_path / "mixed.csv", index=False)
    scored = qaffde("score", model, tmp_path / "mixed.csv")
    table = pd.read_csv(io.StringIO(scored.out))
    assert list(table) == ["y", "x", "name", "log_density"]
    assert set(table["name"]) == {"n,\n1"}
    np.testing.assert_allclose(table["log_density"], small(frame).score_samples(frame))
    frame.rename(columns={"x": "a", "y": "b"}).to_csv(tmp_path / "other.csv", index=False)
    summary = qaffde("score", model, tmp_path / "other.csv", "-c", "a,b", "--json").json
    assert summary["mean_log_density"] == pytest.approx(small(frame).score(frame))


def test_gaps_are_filled_with_the_conditional_mean(qaffde, frame, model, tmp_path):
    holes = frame.copy()
    holes.loc[3, "y"] = np.nan
    holes.to_csv(tmp_path / "holes.csv", index=False)
    filled = qaffde("score", model, tmp_path / "holes.csv", "--missing", "impute")
    table = pd.read_csv(io.StringIO(filled.out))
    fit = small(frame)
    mean = fit.condition({"x": holes.loc[3, "x"]}).mean()[0]
    expected = fit.score_samples(pd.DataFrame({"x": [holes.loc[3, "x"]], "y": [mean]}))[0]
    assert table["log_density"][3] == pytest.approx(expected)
    assert np.isnan(table["y"][3])
    dropped = qaffde("score", model, tmp_path / "holes.csv", "--missing", "drop", "--json")
    assert (dropped.json["rows"], dropped.json["dropped"]) == (199, 1)
    assert dropped.err == "note: 1 rows with missing values were dropped\n"
    imputed = qaffde(
        "fit", tmp_path / "holes.csv", "-o", tmp_path / "m", *SMALL, "--missing=impute"
    )
    assert "1 missing values were filled with the means of their columns" in imputed.err


def test_fit_options(qaffde, frame, write, tmp_path):
    data = write(frame.assign(w=np.arange(200.0)), tmp_path / "data.csv")
    done = qaffde(
        *("fit", data, "-o", tmp_path / "m", "-c", "x,y", "--weights", "w", "--rank", "5"),
        *("--features", 40, "--bandwidth", "0.4,0.6", "--column", "real:-9:9", "--seed", 3),
    )
    assert done.code == 0, done.err
    model = load(tmp_path / "m")
    expected = QAFFDE(40, [0.4, 0.6], 5, columns=Real(-9, 9), random_state=3)
    expected.fit(frame, sample_weight=np.arange(200.0))
    assert (model.rank_, model.base_measure_) == (5, "box")
    np.testing.assert_allclose(model.score_samples(frame), expected.score_samples(frame))
    bounds = ["--column", "x=real:-9:", "--column", "y=real::9"]
    assert (
        qaffde("fit", data, "-o", tmp_path / "m", "-c", "0-1", "--features", 16, *bounds).code == 0
    )
    assert load(tmp_path / "m").schema_.kinds == (Real(-9), Real(upper=9))


@pytest.mark.usefixtures("short_search")
def test_maximum_likelihood(qaffde, frame, write, tmp_path):
    data = write(frame, tmp_path / "data.csv")
    options = ["--features", "16", "--bandwidth", "1", "--time-limit", "100"]
    done = qaffde("fit", data, "-o", tmp_path / "m", "--method", "qaffde-sgd", "--json", *options)
    assert done.code == 0, done.err
    assert done.json["class"] == "QAFFDESGD"
    assert qaffde("score", tmp_path / "m", data, "--json").json["rows"] == 200
    assert qaffde("anomalies", tmp_path / "m", data, "--json").json["anomalies"] < 15
    assert qaffde("score", tmp_path / "m", data, "--missing", "impute").code == 0


def test_a_closed_form_takes_a_time_limit(qaffde, frame, write, tmp_path):
    data = write(frame, tmp_path / "data.csv")
    done = qaffde("fit", data, "-o", tmp_path / "m", "--features", "16", "--time-limit", "100")
    assert done.code == 0, done.err
    assert load(tmp_path / "m").time_limit == 100


@pytest.mark.parametrize("method", ["gmm", "kde", "maf"])
def test_baselines_are_compared_and_not_saved(method, qaffde, frame, write, tmp_path):
    data = write(frame, tmp_path / "data.csv")
    refused = qaffde("fit", data, "-o", tmp_path / "m", "--method", method)
    assert refused.code == 2
    said = " ".join(refused.err.replace("│", " ").split())
    assert f"qaffde-tensor-train, qaffde-autoregressive only, not {method!r}" in said
    assert "compare it with qaffde compare" in said
    assert not (tmp_path / "m").exists()


def test_what_has_no_calculus_fills_in_nothing(qaffde, frame, write, tmp_path):
    data = write(frame, tmp_path / "data.csv")
    QAFFDEOutlierDetector(QAFFDE(16, 1.0), random_state=0).fit(frame).save(tmp_path / "m")
    assert qaffde("score", tmp_path / "m", data).code == 0
    refused = qaffde("score", tmp_path / "m", data, "--missing", "impute")
    assert refused.code == 1
    assert "QAFFDEOutlierDetector" in refused.err


def test_sample(qaffde, model, frame, tmp_path):
    drawn = qaffde("sample", model, "-n", 5, "--seed", 7)
    table = pd.read_csv(io.StringIO(drawn.out))
    assert table.shape == (5, 2)
    assert list(table) == ["x", "y"]
    again = qaffde("sample", model, "-n", 5, "--seed", 7, "--json").json
    np.testing.assert_allclose(again["rows"], table)
    done = qaffde("sample", model, "-n", 5, "-o", tmp_path / "drawn.parquet", "--json")
    assert done.json == {
        "columns": ["x", "y"],
        "rows": 5,
        "output": str(tmp_path / "drawn.parquet"),
    }
    assert len(pd.read_parquet(tmp_path / "drawn.parquet")) == 5


def test_marginal_and_condition_chain(qaffde, model, frame, tmp_path):
    assert qaffde("marginal", model, "y", "-o", tmp_path / "y").code == 0
    done = qaffde("condition", model, "x=1.5", "-o", tmp_path / "given", "--json")
    assert done.json["given"] == {"x": 1.5}
    points = pd.DataFrame({"y": [0.0, 1.0]})
    fit = small(frame)
    for name, expected in (("y", fit.marginal(["y"])), ("given", fit.condition({"x": 1.5}))):
        found = load(tmp_path / name)
        np.testing.assert_allclose(found.score_samples(points), expected.score_samples(points))
    by_number = qaffde("condition", model, "0=-1e-1", "-o", tmp_path / "given", "--json")
    assert by_number.json["given"] == {"x": -0.1}


def test_anomalies(qaffde, model, frame, write, tmp_path):
    odd = pd.concat([frame, pd.DataFrame({"x": [9.0], "y": [-9.0]})])
    data = write(odd, tmp_path / "data.csv")
    listed = qaffde("anomalies", model, data, "--fraction", 0.01)
    table = pd.read_csv(io.StringIO(listed.out))
    assert list(table) == ["x", "y", "row", "log_density", "reason"]
    assert len(table) == 2
    assert table["row"][0] == 200
    assert table["log_density"].is_monotonic_increasing
    assert listed.err.startswith("note: 2 of 201 rows have a log-density below")
    everything = qaffde(
        "anomalies", model, data, "--all", "--threshold", -8, "--json", "-o", tmp_path / "o.npz"
    )
    judged = np.load(tmp_path / "o.npz")
    assert judged["anomaly"].sum() == everything.json["anomalies"] > 0
    assert ((judged["log_density"] < -8) == judged["anomaly"]).all()
    natural = qaffde("anomalies", model, data, "--json").json
    assert natural["found"][0]["row"] == 200
    assert natural["threshold"] == pytest.approx(
        qaffde("anomalies", model, data, "--false-alarms", 0.01, "--json").json["threshold"]
    )
    none = qaffde("anomalies", model, data, "--threshold", -1e9, "-o", tmp_path / "none.csv")
    assert none.code == 0
    assert (tmp_path / "none.csv").read_text() == "x,y,row,log_density,reason\n"


def test_anomalies_have_reasons(qaffde, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    table = pd.DataFrame({"x": x, "y": x + 0.2 * rng.normal(size=500), "z": rng.normal(size=500)})
    table["city"] = rng.choice(["Bogotá", "Cali"], 500)
    QAFFDE(random_state=0).fit(table).save(tmp_path / "m")
    odd = table.head(3).assign(x=0.0, y=0.0, z=0.0)
    odd.loc[0, "z"] = 5.0  # unlikely whatever the others are
    odd.loc[1, "y"] = 1.5  # likely by itself, but not given x
    odd.to_csv(tmp_path / "odd.csv", index=False)
    arguments = ["anomalies", tmp_path / "m", tmp_path / "odd.csv", "--threshold", -6, "--json"]
    found = {row["row"]: row["reason"] for row in qaffde(*arguments).json["found"]}
    assert found.keys() == {0, 1}
    assert found[0].startswith("z (-")
    assert "," not in found[0]
    assert {part.split(" (")[0] for part in found[1].split(", ")} == {"x", "y"}
    listed = qaffde(*arguments[:-1], "--all")
    reasons = pd.read_csv(io.StringIO(listed.out))["reason"]
    assert reasons[:2].tolist() == [found[0], found[1]]
    assert pd.isna(reasons[2])


def test_reasons_are_left_out_where_a_model_has_no_conditionals(qaffde, frame, tmp_path):
    QAFFDE(16, 0.8, base_measure="kernel").fit(frame).save(tmp_path / "m")
    frame.to_csv(tmp_path / "data.csv", index=False)
    listed = qaffde("anomalies", tmp_path / "m", tmp_path / "data.csv", "--fraction", 0.1)
    assert listed.out.startswith("x,y,row,log_density\n")
    assert listed.err.count("no reasons") == 1


def test_scores_are_summed_up(qaffde, model, frame, write, tmp_path):
    data = write(frame, tmp_path / "data.csv")
    log_p = load(model).score_samples(frame)
    done = qaffde("score", model, data, "-o", tmp_path / "scored.csv")
    mean, median = log_p.mean(), np.median(log_p)
    assert done.err.startswith(
        f"note: 200 rows, 0 of them impossible; log-density: mean {mean:.4g}"
    )
    assert f"50 % {median:.4g}" in done.err
    found = qaffde("score", model, data, "--json").json
    assert found["quantiles"]["0.5"] == pytest.approx(median)
    assert found["impossible"] == 0


@pytest.mark.parametrize("density", [QAFFDE(16, 0.8, base_measure="gaussian"), None])
def test_anomalies_of_a_detector(qaffde, frame, write, tmp_path, density):
    detector = QAFFDEOutlierDetector(density, random_state=0).fit(frame)
    detector.save(tmp_path / "detector")
    data = write(frame, tmp_path / "data.csv")
    found = qaffde("anomalies", tmp_path / "detector", data, "--json").json
    assert found["threshold"] == detector.offset_
    assert found["anomalies"] == (detector.predict(frame) == -1).sum()


def test_info(qaffde, model, tmp_path):
    facts = qaffde("info", model, "--json").json
    assert facts["class"] == "QAFFDE"
    assert facts["columns"] == ["x", "y"]
    assert facts["total_weight"] == 200
    assert facts["base_measure"] == "gaussian"
    assert facts["n_fourier_features"] == load(model).n_fourier_features_
    assert facts["effective_rank"] == pytest.approx(np.exp(facts["von_neumann_entropy"]))
    assert facts["file_bytes"] == model.stat().st_size > facts["memory_bytes"]
    assert facts["written_by"].startswith("qaffde ")
    assert "effective_rank" in qaffde("info", model).out
    QAFFDE().save(tmp_path / "unfitted")
    assert qaffde("info", tmp_path / "unfitted", "--json").json["fitted"] is False


def test_info_of_a_table(qaffde, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"city": rng.choice(["Bogotá", "Cali"], 300, p=[0.7, 0.3])})
    table["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 60, 300), unit="D")
    table["spend"] = rng.normal(5, 1, 300)
    fit = QAFFDE(random_state=0).fit(table)
    fit.save(tmp_path / "m")
    facts = qaffde("info", tmp_path / "m", "--json").json
    assert facts["selected_on_rows"] == 300
    share = (table["city"] == "Bogotá").mean()
    assert facts["quantiles"]["city"][0].split() == ["Bogotá", f"{100 * share:.3g}", "%"]
    assert facts["quantiles"]["day"][2].startswith("2024-0")
    median = fit.marginal(["spend"]).ppf(0.5)
    assert facts["quantiles"]["spend"][2] == pytest.approx(median, abs=1e-6)
    given = fit.condition({"city": "Cali"}).condition({"spend": 5.5})
    given.save(tmp_path / "given")
    assert load(tmp_path / "given").given == given.given == "city = Cali, spend = 5.5"
    assert "given         city = Cali, spend = 5.5\n" in qaffde("info", tmp_path / "given").out


def test_compare(qaffde, frame, write, tmp_path):
    data = write(frame, tmp_path / "data.csv")
    arguments = ["compare", data, "--methods", "gmm,kde,qaffde", "--max-rows", 100]
    found = qaffde(*arguments, "--json").json
    assert (found["train_rows"], found["test_rows"]) == (80, 20)
    scores = [row["log_likelihood"] for row in found["methods"]]
    assert scores == sorted(scores, reverse=True)
    assert {row["method"] for row in found["methods"]} == {"gmm", "kde", "qaffde"}
    table = qaffde(*arguments)
    assert "80 training rows, 20 held-out rows" in table.out
    assert table.out.count("\n") == 5


def test_compare_on_kinds_of_columns(qaffde, write, tmp_path):
    rng = np.random.default_rng(0)
    city = rng.choice(["Bogotá", "Cali"], 400)
    table = pd.DataFrame({"city": city, "age": rng.poisson(np.where(city == "Cali", 3, 9))})
    data = write(table, tmp_path / "data.csv")
    mixed = qaffde("compare", data, "--methods", "qaffde,qaffde-sgd", "--json").json["methods"]
    assert [row["error"] for row in mixed] == [None, None]
    refused = qaffde("compare", data, "--methods", "qaffde,gmm")
    assert refused.code == 2
    assert "gmm takes real columns only" in refused.err
    numbers = [
        qaffde("compare", data, "-c", "age", "--methods", "qaffde", "--json", *kind).json
        for kind in ([], ["--column", "age=integer"])
    ]
    real, integer = (found["methods"][0]["log_likelihood"] for found in numbers)
    assert abs(real - integer) > 0.01  # a density and a mass


@pytest.mark.parametrize("kind", ["auto", "slices"])
def test_plot(kind, qaffde, model, frame, write, tmp_path):
    pytest.importorskip("matplotlib")
    data = write(frame, tmp_path / "data.csv")
    done = qaffde(
        "plot", model, "-o", tmp_path / "p.png", "--kind", kind, "--data", data, "--dpi", 40
    )
    assert done.code == 0, done.err
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_plot_options(qaffde, model, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "p.svg"
    done = qaffde("plot", model, "-o", out, "--kind", "slices", "-c", "y", "--given", "x=-1,1")
    assert done.code == 0, done.err
    assert b"<svg" in out.read_bytes()[:600]
    drawn = qaffde("plot", model, "-o", out, "-c", "x", "--json").json
    assert drawn == {"kind": "curve", "columns": ["x"], "picture": str(out)}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command, qaffde):
    shown = qaffde(command, "--help")
    assert shown.code == 0
    assert "Examples:" in shown.out
    assert "--json" in shown.out


def test_a_closed_pipe_is_no_error(model, frame, write, tmp_path, monkeypatch, capfd):
    data = write(frame, tmp_path / "data.csv")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as stopped:
            app(["score", str(model), str(data)])
    monkeypatch.undo()
    assert stopped.value.code == 1
    assert "Traceback" not in capfd.readouterr().err


def test_version(qaffde):
    assert qaffde("--version").out == f"{__version__}\n"


def test_a_terminal_sees_the_progress_of_a_fit(tmp_path):
    data, model = tmp_path / "rows.csv", tmp_path / "rows.qaffde"
    np.savetxt(data, np.random.default_rng(0).normal(size=(100, 2)), delimiter=",")
    command = [sys.executable, "-m", "qaffde.cli", "fit", str(data), "-o", str(model)]
    mine, its = pty.openpty()
    with subprocess.Popen(
        [*command, "--method", "qaffde"], stdout=subprocess.PIPE, stderr=its
    ) as fit:
        os.close(its)
        shown = b"".join(iter(lambda: _read(mine), b"")).decode()
        out = fit.stdout.read().decode()
    os.close(mine)
    assert fit.returncode == 0, shown
    assert "held-out log-likelihood" in shown
    assert "held-out log-likelihood" not in out
    assert not load(model).verbose


def _read(terminal):
    """Next bytes of a terminal; none at its end, which Linux makes an error."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_drift_has_a_table_and_an_exit_status(qaffde, frame, tmp_path):
    frame.to_parquet(tmp_path / "reference.parquet")
    shuffled = frame.sample(frac=1, random_state=0)
    shuffled.to_csv(tmp_path / "same.csv", index=False)
    frame.assign(y=frame["y"] + 1, word="a").to_csv(tmp_path / "moved.csv", index=False)
    same = qaffde("drift", tmp_path / "reference.parquet", tmp_path / "same.csv")
    assert same.code == 0, same.err
    assert "no drift at level 0.05" in same.out
    moved = qaffde("drift", tmp_path / "reference.parquet", tmp_path / "moved.csv")
    assert moved.code == 3
    assert "y  0.0010  moved" in moved.out.replace("     ", "")
    facts = qaffde("drift", tmp_path / "reference.parquet", tmp_path / "moved.csv", "--json")
    assert facts.code == 3
    assert facts.json["drift"]
    assert facts.json["columns"]["y"] == 0.001 < facts.json["columns"]["x"]
    lacking = qaffde("drift", tmp_path / "moved.csv", tmp_path / "same.csv")
    assert lacking.code == 1
    assert "lacks the columns word" in lacking.err
    assert qaffde("drift", "a", "b", "--level", "2").code == 2


def test_a_table_of_another_country(qaffde, tmp_path):
    rng = np.random.default_rng(0)
    member = rng.integers(2, size=200) > 0
    table = pd.DataFrame({"spend": rng.gamma(2, 900, 200).round(2), "member": member})
    table["city"] = rng.choice(["Bogotá", "Cali"], 200)
    own = table.assign(spend=[f"£ {v:,}".translate({44: 46, 46: 44}) for v in table["spend"]])
    own["member"] = np.where(member, "Yes", "no")
    own.to_csv(tmp_path / "own.csv", sep=";", index=False, encoding="latin-1")
    QAFFDE(random_state=0).fit(table).save(tmp_path / "m")
    data = [tmp_path / "own.csv", "--json"]
    assert "say --encoding latin-1" in qaffde("score", tmp_path / "m", *data).err
    data += ["--encoding", "latin-1"]
    assert "say --decimal , and otherwise" in qaffde("score", tmp_path / "m", *data).err
    found = qaffde("score", tmp_path / "m", *data, "--decimal", ",").json
    assert found["mean_log_density"] == pytest.approx(load(tmp_path / "m").score(table))
    fitted = qaffde("fit", *data, "--decimal", ",", "-o", tmp_path / "n", "--method", "qaffde")
    assert fitted.json["kinds"] == [
        "real",
        "category of 2: Yes, no",
        "category of 2: Bogotá, Cali",
    ]
    assert "column 'spend' is text such as '£ " in fitted.err
