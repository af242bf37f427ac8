"""The configuration is read whole or refused with the key that is wrong."""

from pathlib import Path

import pytest

from extender.model.errors import UserError
from extender.model.policy import DEFAULT_STRATEGIES, FairSharingStrategy
from extender.pods.timers import ReadyTimes, Times
from extender.settings import Settings, read_settings, seconds

SHIPPED = Path(__file__).parents[2] / "manifests" / "config" / "config.yaml"


def read(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return read_settings(str(file))


def test_no_file_means_the_defaults():
    assert read_settings(None) == Settings()
    assert Settings().policy().fair_sharing == ()


@pytest.mark.parametrize("text", ["", "\n", "# logLevel: debug\n", "---\n", "null"])
def test_a_file_that_says_nothing_means_the_defaults(tmp_path, text):
    assert read(tmp_path, text) == Settings()


@pytest.mark.parametrize(
    "text", ["a: [", "a:\n\t- b", "a: 1\n---\nb: 2", "a: " + "[" * 5_000, "\x00", "!!python/name:os.system"]
)
def test_what_is_no_yaml_is_refused_in_one_line(tmp_path, text):
    with pytest.raises(UserError) as refused:
        read(tmp_path, text)

    assert str(refused.value).startswith(f"{tmp_path}/config.yaml: ")
    assert "\n" not in str(refused.value)


def test_the_shipped_file_is_the_defaults_with_fair_sharing():
    settings = read_settings(str(SHIPPED))

    assert settings.policy().fair_sharing == DEFAULT_STRATEGIES
    assert settings.ports == Settings().ports
    assert settings.tls == Settings().tls
    assert settings.leader_election == Settings().leader_election


def test_one_strategy_alone(tmp_path):
    settings = read(tmp_path, "fairSharing: {preemptionStrategies: [LessThanInitialShare]}")

    assert settings.policy().fair_sharing == (FairSharingStrategy.LESS_THAN_INITIAL_SHARE,)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("logLevl: info", "logLevl", id="an unknown key"),
        pytest.param("ports: {http: 2026-02-31}", "'2026-02-31' is no timestamp in", id="a day of no month"),
        pytest.param("tls: {}\nports:\n  http: 1\n  http: 2\n", "'http' stands twice", id="a key twice"),
        pytest.param("a: 1\n---\nb: 2", "holds 2 documents", id="two documents"),
        pytest.param("ports: {http: no}", "$.ports.http", id="a wrong type"),
        pytest.param("ports: {http: 70000}", "ports.http must be from 0 to 65535", id="a port out of range"),
        pytest.param("logLevel: loud", "logLevel must be debug", id="a wrong level"),
        pytest.param("logFormat: xml", "logFormat must be json", id="a wrong format"),
        pytest.param("tls: {names: [ok.example, é]}", "tls.names: 'é' is no DNS name", id="no name of a host"),
        pytest.param("tls: {names: ['']}", "tls.names: '' is no DNS name", id="no name at all"),
        pytest.param("kind: Pod", "must be kind Configuration", id="another kind"),
        pytest.param("leaderElection: {retryPeriod: 20s}", "retryPeriod < renewDeadline", id="times out of order"),
        pytest.param("leaderElection: {renewDeadline: 14500ms}", "a write takes time", id="no time for a write"),
        pytest.param("leaderElection: {leaseDuration: soon}", "'soon' is not a duration", id="not a duration"),
        pytest.param("fairSharing: {preemptionStrategies: [X]}", "Invalid enum value 'X'", id="an unknown strategy"),
        pytest.param(
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanInitialShare]}",
            "fairSharing.preemptionStrategies must be",
            id="a list that means nothing",
        ),
        pytest.param("[", "config.yaml", id="not YAML"),
        pytest.param("#" * (1 << 21), "larger than", id="a huge file"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_key(tmp_path, text, want):
    with pytest.raises(UserError) as error:
        read(tmp_path, text)

    assert want in str(error.value)
    assert "config.yaml" in str(error.value)


def test_a_missing_file_says_so():
    with pytest.raises(UserError, match=r"nowhere\.yaml: cannot be read"):
        read_settings("nowhere.yaml")


@pytest.mark.parametrize(("text", "want"), [("15s", 15.0), ("500ms", 0.5), ("1.5m", 90.0), ("2h", 7200.0)])
def test_durations(text, want):
    assert seconds(text) == want


def test_times_are_off_or_the_defaults_unless_they_are_set():
    assert Settings().times() == Times(group_ms=300_000, ready=None)


def test_times_in_kueues_words(tmp_path):
    text = """
podGroupTimeout: 0s
waitForPodsReady:
  timeout: 10m
  requeuingStrategy: {backoffBaseSeconds: 5, backoffMaxSeconds: 50, backoffLimitCount: 2}
"""
    want = ReadyTimes(timeout_ms=600_000, recovery_ms=600_000, backoff_base_ms=5_000, backoff_max_ms=50_000, limit=2)

    assert read(tmp_path, text).times() == Times(group_ms=0, ready=want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("podGroupTimeout: soon", "podGroupTimeout: 'soon' is not a duration; write for example 15s or 500ms"),
        ("waitForPodsReady: {timeout: 0s}", "waitForPodsReady.timeout must be above 0; leave the section out"),
        ("waitForPodsReady: {recoveryTimeout: x}", "waitForPodsReady.recoveryTimeout: 'x' is not a duration"),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: 9, backoffMaxSeconds: 8}}",
            "needs 0 <= backoffBaseSeconds <= backoffMaxSeconds <= 86400",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {timestamp: Now}}",
            "waitForPodsReady.requeuingStrategy.timestamp must be Eviction or Creation",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffLimitCount: -1}}",
            "waitForPodsReady.requeuingStrategy.backoffLimitCount must be 0 or more",
        ),
    ],
)
def test_wrong_times_are_refused_with_the_key(tmp_path, text, want):
    with pytest.raises(UserError) as refused:
        read(tmp_path, text)

    assert want in str(refused.value)
