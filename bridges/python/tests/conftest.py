"""The device that tests run on: BACKPLANE_TEST_DEVICE, or the first of class host."""

import os

import pytest

import backplane


@pytest.fixture(scope="session", autouse=True)
def device():
    name = os.environ.get("BACKPLANE_TEST_DEVICE")
    chosen = backplane.Device(name) if name else backplane.default_device()
    backplane.set_default_device(chosen)
    return chosen


@pytest.fixture
def on_host(device):
    if not device.is_host:
        pytest.skip(f"{device} has no memory of the process")
    return device
