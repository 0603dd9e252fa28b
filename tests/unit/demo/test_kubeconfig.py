"""Which cluster a kubeconfig points at, by kubectl's own rules."""

import json
from pathlib import Path

import pytest

from demo.current.kubeconfig import Context, current
from testbed import TestbedError


def kubeconfig(path: Path, context: str | None, *names: str) -> Path:
    """A file with a context, a cluster and a user for each of `names`."""
    content = {
        "current-context": context,
        "contexts": [{"name": name, "context": {"cluster": f"c-{name}", "user": f"u-{name}"}} for name in names],
        "clusters": [{"name": f"c-{name}", "cluster": {"server": f"https://{name}.example"}} for name in names],
    }
    path.write_text(json.dumps({key: value for key, value in content.items() if value}))
    return path


def test_the_current_context_of_the_named_file(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "blue", "red", "blue")
    found = current({"KUBECONFIG": str(file), "HOME": "/nowhere"})
    assert found == Context("blue", "https://blue.example", "u-blue", (file,))


def test_without_the_variable_it_is_the_file_in_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    file = kubeconfig(tmp_path / ".kube" / "config", "red", "red")
    for environment in ({}, {"KUBECONFIG": ""}):
        assert current({**environment, "HOME": str(tmp_path)}).files == (file,)


def test_of_several_files_the_first_to_say_a_thing_is_right(tmp_path: Path) -> None:
    silent = kubeconfig(tmp_path / "silent", None, "red")
    first = kubeconfig(tmp_path / "first", "blue", "blue")
    second = kubeconfig(tmp_path / "second", "red", "blue", "red")
    second.write_text(second.read_text().replace("blue.example", "not-this.example"))
    absent = tmp_path / "absent"
    found = current({"KUBECONFIG": f"{silent}:{absent}:{first}:{second}"})
    assert (found.name, found.server) == ("blue", "https://blue.example")
    assert found.kubeconfig == f"{silent}:{first}:{second}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "KUBECONFIG names .*config, which does not exist"),
        ("", "no current context, and none is guessed"),
        ("contexts: []", "no current context"),
        ("current-context: red", "has no context 'red'"),
        ("{current-context: red, contexts: [{name: red, context: {cluster: c}}]}", "has no cluster 'c'"),
        (
            "{current-context: red, contexts: [{name: red, context: {cluster: c}}], clusters: [{name: c}]}",
            "cluster 'c' of context 'red' has no server",
        ),
        ("- a list", "is no kubeconfig: it holds a list"),
        ("{", "cannot be read as a kubeconfig"),
    ],
)
def test_what_names_no_cluster_is_refused_in_words(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    with pytest.raises(TestbedError, match=words):
        current({"KUBECONFIG": str(file)})


def test_without_any_file_nothing_is_guessed_not_even_the_cluster_around_a_pod(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"KUBECONFIG is not set, and the default is .*/\.kube/config"):
        current({"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"})
