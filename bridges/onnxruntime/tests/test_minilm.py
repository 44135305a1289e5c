"""all-MiniLM-L6-v2, with its weights if their package is installed, against the CPU provider."""

import minilm
import numpy as np
import pytest
from conftest import expect_counts, open_session


@pytest.fixture(scope="module")
def sessions():
    files = minilm.package_files()
    model = minilm.build(files and minilm.read_safetensors(files["model.safetensors"]))
    return open_session(model), open_session(model, on_cpu=True)


def test_the_whole_model_is_one_partition(sessions):
    expect_counts(sessions[0], (1, None, 0))


@pytest.mark.parametrize("batch,tokens", [(1, 5), (2, 16), (3, 64)])
def test_embeddings_are_those_of_the_cpu_provider(sessions, batch, tokens):
    rng = np.random.default_rng(batch)
    for run in range(4):  # Op by op, recorded, and replayed with other values.
        ids = rng.integers(1, minilm.VOCABULARY, (batch, tokens))
        mask = (np.arange(tokens) < tokens - run).astype(np.int64) * np.ones_like(ids)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        given, expected = (session.run(None, feed)[0] for session in sessions)
        np.testing.assert_allclose(given, expected, atol=2e-6)
        np.testing.assert_allclose(np.linalg.norm(given, axis=1), 1, rtol=1e-5)
