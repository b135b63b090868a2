// The charts of the overview. Every second a pulse arrives; the colours are those of the page.
(() => {
    "use strict";
    const KEPT = 300;
    const charts = [];

    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const soft = (name) => `color-mix(in srgb, ${colour(name)} 18%, transparent)`;
    const short = (number) => (number >= 1e6 ? `${number / 1e6}M` : number >= 1e3 ? `${number / 1e3}k` : `${number}`);

    const clock = (seconds, step) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }) });

    const kinds = {
        minutes: {
            series: [["done", "good"], ["failed", "bad"], ["retried", "warn"]],
            begin: (pulse) => columns(pulse.minutes),
            add: (_data, pulse) => columns(pulse.minutes),
        },
        backlog: {
            series: [["queued", "accent"], ["running", "good"]],
            begin: (pulse) => [[pulse.at], [pulse.queued], [pulse.running]],
            add: (data, pulse) => {
                const [at, queued, running] = data;
                if (pulse.at <= at[at.length - 1]) return data;
                at.push(pulse.at);
                queued.push(pulse.queued);
                running.push(pulse.running);
                if (at.length > KEPT) for (const each of data) each.shift();
                return data;
            },
        },
    };

    function columns(rows) {
        return [0, 1, 2, 3].map((column) => rows.map((row) => row[column]));
    }

    function size(element) {
        return { width: Math.max(200, element.clientWidth - 24), height: 210 };
    }

    function options(element, kind) {
        const line = (axis) => ({ stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui", ...axis });
        return {
            ...size(element),
            legend: { show: false },
            cursor: { y: false },
            scales: { x: { range: (_plot, low, high) => [Math.min(low, high - 30), high] }, y: { range: (_plot, _low, high) => [0, Math.max(4, high * 1.1)] } },
            axes: [line({ size: 32, values: (_plot, ticks, _axis, _space, step) => ticks.map((tick) => clock(tick, step)) }), line({ values: (_plot, ticks) => ticks.map(short), size: 46 })],
            series: [{}, ...kind.series.map(([label, name]) => ({ label, stroke: colour(name), fill: soft(name), width: 2, points: { show: false } }))],
        };
    }

    function draw(chart) {
        if (chart.plot) chart.plot.destroy();
        chart.plot = new uPlot(options(chart.element, chart.kind), chart.data, chart.element);
    }

    for (const element of document.querySelectorAll("[data-chart]")) {
        const kind = kinds[element.dataset.chart];
        const chart = { element, kind, plot: null, data: kind.begin(JSON.parse(element.dataset.pulse)) };
        charts.push(chart);
        draw(chart);
    }

    document.body.addEventListener("pulse", (event) => {
        for (const chart of charts) {
            chart.data = chart.kind.add(chart.data, event.detail);
            chart.plot.setData(chart.data);
        }
    });
    document.body.addEventListener("theme", () => charts.forEach(draw));
    addEventListener("resize", () => { for (const chart of charts) chart.plot.setSize(size(chart.element)); });
})();
