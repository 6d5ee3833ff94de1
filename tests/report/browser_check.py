#!/usr/bin/env python3
"""A report in a real browser: renders, says nothing in the console, fits narrow and wide windows, light, dark and paper.

    tests/report/browser_check.py PROGRAM MODEL

Quantizes the tiny MODEL with PROGRAM and looks at its report.html with Debian's chromium and chromium-driver through
python3-selenium. Exit status 77 where these are not installed.
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
except ImportError:
    sys.exit(77)


def driver():
    options = Options()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


def check(condition, what):
    if not condition:
        sys.exit(f"browser_check: {what}")


def emulate(browser, width, scheme, media="screen"):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                            {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]})


def look(browser, width, scheme):
    """What is drawn at this width, in this scheme."""
    return browser.execute_script("""
        const page = document.documentElement, style = getComputedStyle(document.body);
        return {over: page.scrollWidth - page.clientWidth, width: page.clientWidth, background: style.backgroundColor,
                ink: style.color,
                pictures: [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height),
                filled: [...document.querySelectorAll('polyline')].filter(p => getComputedStyle(p).fill != 'none').length,
                words: [...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)}""")


def folded(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('details table')].map(t => t.checkVisibility())")


def main(program, model):
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        return 77
    with tempfile.TemporaryDirectory() as place:
        text, out = Path(place) / "text & more.txt", Path(place) / "a <model>"
        text.write_text("".join(f"Line {i * i} of the log says so. " for i in range(400)), encoding="utf-8")
        subprocess.run([program, "quantize", model, "-o", out, "--bpw", "5", "--calib", text, "--calib-rows", "4",
                        "--calib-length", "32", "-q"], check=True, stdout=subprocess.DEVNULL)
        browser = driver()
        try:
            browser.get((out / "report.html").as_uri())
            colours = {}
            for scheme in ("light", "dark"):
                for width in (360, 1400):
                    emulate(browser, width, scheme)
                    seen = look(browser, width, scheme)
                    check(seen["width"] == width, f"the window is {seen['width']} wide, not {width}")
                    check(seen["over"] == 0, f"at {width} px the page is {seen['over']} px too wide")
                    check(len(seen["pictures"]) == 7 and min(seen["pictures"]) > 12, f"pictures: {seen['pictures']}")
                    check(seen["filled"] == 0, "a line of a chart is filled")
                    check(min(seen["words"]) >= 8, f"at {width} px a text is {min(seen['words'])} px high")
                    check(seen["ink"] != seen["background"], "ink and paper are of one colour")
                    colours[scheme] = seen["background"]
            check(colours["light"] != colours["dark"], f"light and dark are alike: {colours}")
            check(not any(folded(browser)), "tables are shown before they are opened")
            emulate(browser, 800, "light", "print")
            check(all(folded(browser)), "a table stays hidden on paper")
            said = browser.get_log("browser")
            check(not said, f"the console says {said}")
            check(len(browser.find_elements("css selector", "script")) == 0, "there is a script")
        finally:
            browser.quit()
    print("browser_check: light and dark, 360 and 1400 px: as they should be")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
