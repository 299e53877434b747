"""A headless Chromium for a session; tests skip with the reason where it is missing."""

import importlib.util
import json
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest


def missing():
    """Why no browser can be started; None where one can."""
    if importlib.util.find_spec("selenium") is None:
        return "needs selenium (the extra test)"
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return "needs chromium and its driver (Debian: apt-get install chromium chromium-driver)"
    return None


@contextmanager
def started():
    """A headless Chromium with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for argument in (
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", f"--user-data-dir={profile}",
        ):  # fmt: skip
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


@pytest.fixture(scope="session")
def chromium():
    why = missing()
    if why:
        pytest.skip(why)
    with started() as driver:
        yield driver


class Page:
    """An open page, and what it said and asked for while it was open."""

    def __init__(self, driver, file, width=1280, height=720):
        self.driver, self.file = driver, Path(file)
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        for log in ("browser", "performance"):
            driver.get_log(log)
        driver.get(self.file.as_uri())
        self.wait_for("document.documentElement.dataset.firstDraw !== undefined")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait_for(self, condition, seconds=20):
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: self.run(f"return {condition}"))

    def locate(self, row, panel=0):
        """Where an op stands in the window."""
        place = self.run("return timelines.panels[arguments[0]].locate(arguments[1])", panel, row)
        return place["x"], place["y"]

    def mouse(self, kind, x, y, **more):
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y} | more)

    def hover(self, row, panel=0):
        self.mouse("mouseMoved", *self.locate(row, panel))
        return self.run("return document.getElementById('tip').innerText")

    def click(self, row, panel=0):
        x, y = self.locate(row, panel)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        return self.details()

    def details(self):
        return self.run("return document.getElementById('details').innerText").removeprefix("✕").strip()

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def view(self):
        return tuple(self.run("return [timelines.from, timelines.to]"))

    def settle(self):
        """Until what was asked for has been drawn."""
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def complaints(self):
        """Errors on the console, and requests for anything but the page itself and data inside it."""
        said = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if url != self.file.as_uri() and not url.startswith(("data:", "blob:")):
                    said.append(f"asked for {url}")
        return said


@pytest.fixture
def opened(chromium):
    """Open a file in the browser; in the end nothing may have been complained of."""
    pages = []

    def open_page(file, **size):
        pages.append(Page(chromium, file, **size))
        return pages[-1]

    yield open_page
    assert [page.complaints() for page in pages[-1:]] == [[]]
