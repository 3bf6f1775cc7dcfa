"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  // Theme: follow the system until the reader chooses. A page opened as a file may not be allowed to store the choice.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const store = { get: () => { try { return localStorage.getItem("taskloss-theme"); } catch { return null; } },
                  set: (value) => { try { localStorage.setItem("taskloss-theme", value); } catch { /* not allowed */ } } };
  const label = () => { byId("theme").textContent = current() === "dark" ? "Light" : "Dark"; };
  const stored = store.get();
  if (stored === "dark" || stored === "light") root.dataset.theme = stored;
  byId("theme").hidden = false;
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    store.set(root.dataset.theme);
    label();
  });
  dark.addEventListener("change", label);
  label();

  // Legend: a click hides or shows the series of a method in all the charts.
  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      for (const shape of document.querySelectorAll(`.charts .chart .${button.dataset.series}`)) shape.classList.toggle("off", !shown);
    });
  }

  // Several classes: show the table of the chosen method.
  const classesOf = byId("classes-of");
  if (classesOf) classesOf.addEventListener("change", () => {
    document.querySelectorAll(".of-method").forEach((table, index) => { table.hidden = index !== classesOf.selectedIndex; });
  });

  // Threshold: the page holds the counts at each step of the slider; everything else is computed from them.
  const methods = JSON.parse(byId("thresholds").textContent);
  if (!methods.length) return;
  const slider = byId("slider"), choice = byId("method");
  const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)}%` : "–");
  const count = (value) => value.toLocaleString("en-US");

  const drawCut = (figure, share) => {
    const chart = figure.querySelector("svg");
    let cut = chart.querySelector(".cut");
    if (!cut) {
      cut = document.createElementNS("http://www.w3.org/2000/svg", "path");
      cut.setAttribute("class", "cut");
      chart.append(cut);
    }
    const axis = chart.querySelector(".axis").getAttribute("d").match(/M(\S+) (\S+)H(\S+)/).slice(1).map(Number);
    const left = axis[0] + Math.min(1, Math.max(0, share)) * (axis[2] - axis[0]);
    cut.setAttribute("d", `M${left.toFixed(1)} 6V${axis[1]}`);
  };

  const show = () => {
    const method = methods[choice.selectedIndex], step = Number(slider.value);
    const tp = method.tp[step], fp = method.fp[step];
    const fn = method.positives - tp, tn = method.negatives - fp, all = method.positives + method.negatives;
    const value = method.values[step];
    byId("threshold").textContent = value.toPrecision(4);
    byId("flagged").textContent = `${count(tp + fp)} of ${count(all)} flagged (${percent(tp + fp, all)})`;
    byId("precision").textContent = percent(tp, tp + fp);
    byId("recall").textContent = percent(tp, method.positives);
    byId("fscore").textContent = percent(2 * tp, 2 * tp + fp + fn);
    for (const [id, number] of [["tp", tp], ["fp", fp], ["fn", fn], ["tn", tn]]) byId(id).textContent = count(number);
    slider.setAttribute("aria-valuetext", `threshold ${value.toPrecision(4)}`);
    const figures = document.querySelectorAll(".histogram");
    figures.forEach((figure, index) => { figure.hidden = index !== choice.selectedIndex; });
    drawCut(figures[choice.selectedIndex], (value - method.low) / (method.high - method.low));
  };

  const choose = () => {
    const method = methods[choice.selectedIndex];
    slider.max = String(method.values.length - 1);
    slider.value = String(method.start);
    byId("origin").textContent = method.chosen
      ? "The slider starts at the threshold that the method chose on held-out samples."
      : "The slider starts where the F-score of these test samples is highest.";
    show();
  };

  choice.addEventListener("change", choose);
  slider.addEventListener("input", show);
  const preferred = methods.findIndex((method) => method.method === choice.dataset.preferred);
  choice.selectedIndex = Math.max(0, preferred);
  choose();
})();
