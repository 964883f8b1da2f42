// Lines over time: uPlot with the colours of the page. Columns come with the page, rows by SSE.
"use strict";
window.nexoCharts = (() => {
  const ROWS_MAX = 2400;
  const plots = [];
  const tables = new Map(); // the columns by the element they came in: plots of one share them

  const color = (number) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--line-${number}`).trim();
  const property = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const short = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size >= 1e9) return (value / 1e9).toFixed(1) + "G";
    if (size >= 1e6) return (value / 1e6).toFixed(1) + "M";
    if (size >= 1e4) return (value / 1e3).toFixed(0) + "k";
    return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
  };

  // The marks of an axis, with as many digits as tell them apart.
  const marks = (_, values) => {
    const high = Math.max(...values.map(Math.abs));
    const [unit, name] = high >= 1e9 ? [1e9, "G"] : high >= 1e6 ? [1e6, "M"]
      : high >= 1e4 ? [1e3, "k"] : [1, ""];
    const step = values.length > 1 ? Math.abs(values[1] - values[0]) / unit : 1;
    const digits = Math.max(0, Math.min(3, Math.ceil(-Math.log10(step) - 1e-9)));
    return values.map((value) => value === 0 ? "0" : (value / unit).toFixed(digits) + name);
  };
  // Seconds and more: marks within a second would all show the same time.
  const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600,
    43200, 86400];

  const columnsOf = (id) => {
    const source = document.getElementById(`${id}-history`) || document.getElementById("history");
    if (source && !tables.has(source)) tables.set(source, JSON.parse(source.textContent));
    return source ? tables.get(source) : null;
  };

  function scale() {
    // From zero, so that a small change does not look like a large one.
    return { range: (_, low, high) => [0, Math.max(1, (high || 0) * 1.1)] };
  }

  // In UTC, as every time on the pages.
  const utc = (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC");

  function clock(_, splits, _index, _space, step) {
    const end = step < 60 ? 19 : 16; // with seconds, or without
    return splits.map((at) => new Date(at * 1000).toISOString().slice(11, end));
  }

  function axis(extra) {
    return {
      stroke: property("--dim"),
      grid: { stroke: property("--rule"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
      ...extra,
    };
  }

  // While nobody points at a plot its legend tells the last values.
  function latest(plot) {
    const count = plot.data[0].length;
    if (count && plot.cursor.idx == null) plot.setLegend({ idx: count - 1 }, false);
  }

  function large(figure) {
    const columns = columnsOf(figure.id);
    const series = JSON.parse(figure.dataset.series);
    const place = figure.querySelector(".plot");
    if (!columns) return;
    const width = () => Math.max(200, place.clientWidth);
    const hasSecond = series.some((each) => each.scale === "s");
    const times = axis({ values: clock, size: 30, space: 75, incrs: STEPS_S });
    const axes = [times, axis({ size: 52, values: marks })];
    if (hasSecond)
      axes.push(axis({ scale: "s", side: 1, size: 52, values: marks, grid: { show: false } }));
    const options = {
      width: width(),
      height: Number(figure.dataset.height),
      padding: [8, 26, 0, 0], // room for the half of the last time
      tzDate: utc,
      cursor: { sync: { key: "nexo" }, points: { size: 6 }, drag: { x: true, y: false } },
      legend: { live: true },
      hooks: { setLegend: [latest], ready: [latest], setData: [latest] },
      scales: { x: { time: true }, y: scale(), s: scale() },
      axes,
      series: [
        {
          label: "UTC",
          value: (_, at) => (at ? new Date(at * 1000).toISOString().slice(11, 19) : "–"),
        },
        ...series.map((each) => ({
          label: each.label,
          stroke: color(each.color),
          width: 1.5,
          scale: each.scale || "y",
          points: { show: columns[0].length < 3 },
          value: (_, value) => short(value),
        })),
      ],
    };
    const pick = (all) => [all[0], ...series.map((each) => all[each.column])];
    const plot = new uPlot(options, pick(columns), place);
    plots.push({ plot, columns, pick, width, element: place });
  }

  function small(element) {
    const columns = columnsOf("");
    if (!columns) return;
    const index = Number(element.dataset.column);
    const width = () => Math.max(60, element.clientWidth);
    const options = {
      width: width(),
      height: 44,
      cursor: { show: false },
      legend: { show: false },
      scales: { x: { time: true }, y: scale() },
      axes: [{ show: false }, { show: false }],
      padding: [2, 0, 2, 0],
      series: [
        {},
        { stroke: color(1), width: 1.5, fill: property("--tint"), points: { show: false } },
      ],
    };
    const pick = (all) => [all[0], all[index]];
    const plot = new uPlot(options, pick(columns), element);
    plots.push({ plot, columns, pick, width, element });
  }

  function draw() {
    for (const each of plots.splice(0)) each.plot.destroy();
    if (typeof uPlot === "undefined") return;
    document.querySelectorAll("figure.chart").forEach(large);
    document.querySelectorAll(".spark").forEach(small);
  }

  function isZoomed(plot, times) {
    const x = plot.scales.x;
    const last = times[times.length - 1];
    return times.length > 1 && (x.min > times[0] + 0.001 || x.max < last - 0.001);
  }

  function add(row) {
    const zoomed = plots.map(({ plot }) => isZoomed(plot, plot.data[0]));
    const grown = new Set();
    for (const columns of tables.values()) {
      const last = columns[0][columns[0].length - 1];
      if (columns.length !== row.length || (last !== undefined && row[0] <= last)) continue;
      columns.forEach((column, index) => column.push(row[index]));
      if (columns[0].length > ROWS_MAX) columns.forEach((column) => column.shift());
      grown.add(columns);
    }
    plots.forEach(({ plot, columns, pick }, place) => {
      if (!grown.has(columns)) return;
      plot.setData(pick(columns), !zoomed[place]);
      if (zoomed[place]) plot.redraw();
    });
  }

  addEventListener("resize", () => {
    for (const { plot, width } of plots) plot.setSize({ width: width(), height: plot.height });
  });
  return { draw, add, plots };
})();
