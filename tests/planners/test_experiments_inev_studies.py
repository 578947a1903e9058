"""The case studies on recorded streams, here on small streams that look like them."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.coordinator.inev.plan.well_formed import faults
from headwater.deploy.cli.experiment_inev import studies_in
from headwater.deploy.experiments.inev.case_studies import SPEED, CaseStudy, same_share, study
from headwater.deploy.experiments.inev.figures import QUICK, case_studies
from headwater.deploy.experiments.inev.modelled_studies import ModelledStudy, by_formula, counts
from headwater.deploy.experiments.inev.modelled_studies import ruled as modelled_rules
from headwater.deploy.experiments.inev.recordings import CITI_BIKE, DAY_S, RECORDINGS, trip_type
from headwater.deploy.experiments.inev.simulated import modelled
from headwater.protocol.errors import ConfigError


def quiet(share: float) -> None:
    """Progress is not watched."""


BIKES = RECORDINGS["Citi Bike"].folder
BIKE_NODES = RECORDINGS["Citi Bike"].nodes


def written(folder: Path, name: str, lines: Iterable[str]) -> None:
    folder.mkdir(exist_ok=True)
    with gzip.open(folder / name, "wt") as out:
        out.writelines(f"{line}\n" for line in lines)


def streams(folder: Path) -> Path:
    """A stream like that of Citi Bike: every tenth trip of every type, some of them of the same bike."""
    for node in range(BIKE_NODES):
        lines = []
        for at in range(270):
            second = at * 300 + node
            bike = (at // 9 + node) % 12
            clock = f"{second // 3600}:{second // 60 % 60:02}:{second % 60:02}"
            lines.append(f"{clock},{'ABCDEFGHI'[(at + node) % 9]},{bike},{bike % 10}")
        written(folder / BIKES, f"node{node}.csv.gz", lines[: 270 if node else 27])
    return folder


TRIPS = "tripduration,starttime,stoptime,start station id,end station id,bikeid,usertype,birth year,gender"


def trips(folder: Path) -> Path:
    """Trips as the operator publishes them: 4 bikes that all riders use, at 7 stations, for two days."""
    lines = [TRIPS]
    for at in range(400):
        minute = at * 7
        when = f"2019-01-0{1 + minute // 1440} {minute // 60 % 24:02}:{minute % 60:02}:00.5000"
        duration = (50, 300, 6000)[at % 11 % 3]
        rider = ("Subscriber,1950", "Subscriber,1985", "Customer,")[at % 7 % 3]
        lines.append(f"{duration},,{when},1,{3183 + at % 7},{at % 4},{rider},1")
    written(folder / "citibike", "JC-201901-citibike-tripdata.csv.gz", lines)
    return folder


def tasks(folder: Path) -> Path:
    """Events of a cluster: every job is submitted, scheduled and failed within minutes."""
    lines = ["time_us,event_type,collection_id,instance_index,machine_id,user,scheduling_class,priority,cpu,mem"]
    for at in range(300):
        minute, kind = divmod(at, 3)
        lines.append(
            f"{(minute * 60 + kind * 10) * 1_000_000},{(0, 3, 5)[kind]},{minute // 2},0,{at * 7 % 40},u,0,0,0,0"
        )
    written(folder / "borg2019", "instance_events_1.csv.gz", lines)
    return folder


def test_a_case_study_counts_rates_and_agreement_in_the_stream(tmp_path: Path) -> None:
    given = CaseStudy(recording="Citi Bike", query=1, days=1, folder=str(streams(tmp_path)))
    ruled_by = study(given, 1)
    assert set(ruled_by.statistics.rates) == set("EFGH")
    births = list(ruled_by.births())
    assert births == sorted(births, key=lambda birth: birth[0])
    per_s = sum(sum(at.values()) for at in ruled_by.statistics.rates.values())
    assert len(births) == round(per_s * DAY_S / SPEED)
    assert len({(event.node, event.seq) for _, _, event in births}) == len(births)
    ((share,),) = (told.values() for told in ruled_by.statistics.selectivities.values())
    assert 0 < share < 1
    second = 1_000_000
    found = [(0, 0, "E", 1), (5 * second, 1, "F", 1), (9 * second, 2, "F", 2), ((DAY_S + 1) * second, 0, "F", 1)]
    assert same_share(found, {"E", "F"}, DAY_S) == 1 / 2
    assert same_share(found, {"E", "F"}, 6) == 1


def test_every_query_of_the_case_study_can_be_planned(tmp_path: Path) -> None:
    given = CaseStudy(recording="Citi Bike", query=1, days=1, folder=str(streams(tmp_path)))
    for query in CITI_BIKE:
        plan = modelled(study(replace(given, query=query), 1))
        assert faults(plan) == []
        assert len(plan.problem.queries) == len(CITI_BIKE[query])
        assert not any(query.whole for query in plan.problem.queries)


@pytest.mark.parametrize(
    ("duration", "user", "born", "expected"),
    [
        ("99", "Subscriber", "1961", "A"), ("99", "Subscriber", "1962", "B"), ("99", "Customer", "1950", "C"),
        ("100", "Subscriber", "1950", "D"), ("5000", "Subscriber", "", "E"), ("5001", "Customer", "", "I"),
    ],
)  # fmt: skip
def test_the_type_of_a_trip_says_how_long_it_took_and_by_whom(
    duration: str, user: str, born: str, expected: str
) -> None:
    assert trip_type({"tripduration": duration, "usertype": user, "birth year": born}) == expected


def test_a_case_study_on_trips_finds_what_centralised_evaluation_finds(tmp_path: Path) -> None:
    found = CaseStudy(recording="Jersey City", query=2, days=2, folder=str(trips(tmp_path))).measured(1, quiet)
    assert found["delivered"], "there is something to find"
    assert found["delivered"] == found["delivered_centr"]
    assert found["measured_ratio"] is not None
    assert 0 < found["measured_ratio"] <= 1


def test_a_case_study_on_a_cluster_joins_tasks_of_one_job(tmp_path: Path) -> None:
    given = CaseStudy(recording="Borg", query=5, days=1, folder=str(tasks(tmp_path)))
    found = given.measured(1, quiet)
    # Of two submissions of a job, a minute apart, the first is followed by three pairs and the second by one.
    assert found["delivered"] == found["delivered_centr"] == 50 * 4
    with pytest.raises(ConfigError, match="Borg: no events of type H in the first 1 days"):
        study(replace(given, query=1), 1)


def test_a_recording_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "borg2019", "instance_events_1.csv.gz", ["time_us,event_type", "1,2"])
    with pytest.raises(ConfigError, match="does not hold lines of time_us, event_type, collection_id"):
        study(CaseStudy(recording="Borg", query=5, days=1, folder=str(tmp_path)), 1)


def test_streams_without_attributes_are_planned_with_their_rates(tmp_path: Path) -> None:
    for node in range(20):
        lines = [f"195:00:{at % 60:02},{'AAAABBBI'[at % 8]}" for at in range(80)]
        written(tmp_path / "inev-google-cluster", f"node{node}.csv.gz", [*lines, *["195:01:00,H"] * (node == 3)])
    assert counts(tmp_path / "inev-google-cluster")["A", 7] == 40
    given = ModelledStudy(stream="Cluster, share 0.03", query=1, folder=str(tmp_path))
    rates = modelled_rules(given, 1).statistics.rates
    assert rates["H"] == {"n3": 1 / (26.75 * 3600)}
    found = given.measured(1, quiet)
    assert found["ratio"] is not None
    assert 0 < found["ratio"] < 1
    with pytest.raises(ConfigError, match=r"cannot read .*inev-citibike/node0"):
        replace(given, stream="Citi Bike, share 0.02").measured(1, quiet)
    with pytest.raises(ConfigError, match="no events of type D, G, which query 3 asks for"):
        replace(given, query=3).measured(1, quiet)
    formula = by_formula(replace(given, stream="Cluster, the paper's formula"), 1)
    assert formula.problem.network.total("H") == pytest.approx(0.5 / 26.75), "in a window of half an hour"
    assert [query.name for query in formula.problem.queries] == ["SEQ(A, H, B, I)"]
    assert faults(formula) == []


def test_the_case_studies_are_those_whose_streams_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="none of the recorded streams; there should be folders inev-citibike-bikes,"):
        studies_in(tmp_path, 7)
    (only,) = studies_in(tasks(tmp_path), 7)
    assert list(only.lines) == ["Borg, 10 nodes, 18 days"]
    assert "left out" in capsys.readouterr().err
    (both,) = studies_in(streams(tmp_path), 7)
    assert list(both.lines) == ["Citi Bike, 10 nodes, 7 days", "Borg, 10 nodes, 18 days"]
    (tmp_path / BIKES / "node3.csv.gz").unlink()
    with pytest.raises(ConfigError, match=r"there is no .*node3"):
        studies_in(tmp_path, 7)


def test_where_the_data_is_does_not_tell_studies_apart() -> None:
    one = CaseStudy(recording="Citi Bike", query=1, days=2, folder="here")
    assert one.fingerprint() == replace(one, folder="there").fingerprint()
    assert one.fingerprint() != replace(one, days=3).fingerprint()
    assert one.fingerprint() != replace(one, query=2).fingerprint()
    assert one.fingerprint() != replace(one, recording="Jersey City").fingerprint()


def test_studies_are_run_on_fewer_networks_than_there_are_seeds() -> None:
    studies = case_studies("there", 7)
    jobs = replace(QUICK, seeds=3, topologies=2).jobs([studies])
    assert len(jobs) == 2 * sum(map(len, studies.lines.values()))
    assert {job.time_s for job in jobs} == {7 * DAY_S, 91 * DAY_S, 18 * DAY_S}
