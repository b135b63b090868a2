// What the pages do in a browser. Everything works without it, except that nothing is live.
(() => {
    "use strict";
    const $ = (selector, within = document) => within.querySelector(selector);
    const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
    const base = document.body.dataset.base;

    // ------------------------------------------------------------ live: topics that changed, one stream a page

    const lamp = $("[data-live]");
    const tell = (name, detail) => document.body.dispatchEvent(new CustomEvent(name, { detail }));
    const topics = () => new Set($$("[data-topics]").flatMap((each) => each.dataset.topics.split(" ")));
    let stream = null;
    let broken = false;
    let over = false;
    let waiting = new Set();
    let timer = null;

    function light(state, text) {
        if (!lamp) return;
        lamp.dataset.live = state;
        $("[data-live-text]", lamp).textContent = text;
    }

    // Pages fetch themselves at most once a second, and not while the page is hidden.
    function changed(names) {
        for (const name of names) waiting.add(name);
        if (timer !== null || document.hidden) return;
        timer = setTimeout(() => {
            const now = waiting;
            waiting = new Set();
            timer = null;
            for (const name of now) tell(`live-${name}`);
        }, 250);
    }

    function connect() {
        if (!lamp || stream || !window.EventSource) return;
        stream = new EventSource(`${base}/live`);
        stream.addEventListener("open", () => {
            light("on", "Live");
            if (broken) changed(topics());
            broken = false;
        });
        stream.addEventListener("changed", (event) => changed(event.data.split(" ")));
        stream.addEventListener("pulse", (event) => tell("pulse", JSON.parse(event.data)));
        stream.addEventListener("over", () => { over = true; stop(); light("off", "Server is ending"); retry(); });
        stream.addEventListener("error", () => {
            broken = true;
            light("off", "Reconnecting");
            if (stream && stream.readyState === EventSource.CLOSED) { stop(); retry(); }
        });
    }

    function stop() {
        if (stream) stream.close();
        stream = null;
    }

    function retry() {
        broken = true;
        setTimeout(connect, over ? 3000 : 2000);
        over = false;
    }

    connect();
    addEventListener("pagehide", stop);
    addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden && waiting.size) changed([]); });

    // A list does not move under the hand of who is choosing in it.
    document.body.addEventListener("htmx:before:request", (event) => {
        const live = event.target.closest && event.target.closest("[data-still-while-choosing]");
        if (live === event.target && $("[data-choose]:checked", live)) event.preventDefault();
    });

    // ------------------------------------------------------------ asking: the server's question, in a dialog

    const dialog = $("#ask");
    if (dialog) {
        document.body.addEventListener("htmx:after:swap", () => {
            if (dialog.firstElementChild && !dialog.open) {
                dialog.showModal();
                const first = $("[autofocus]", dialog) ?? $("button", dialog);
                if (first) first.focus();
            }
        });
        dialog.addEventListener("click", (event) => {
            if (event.target === dialog || event.target.closest("[data-close]")) { event.preventDefault(); dialog.close(); }
        });
        dialog.addEventListener("close", () => dialog.replaceChildren());
    }

    // ------------------------------------------------------------ times that go on

    function span(seconds) {
        if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
        for (const [unit, size, from] of [["days", 86400, 172800], ["h", 3600, 7200], ["min", 60, 120]]) {
            if (seconds >= from) return `${Math.round(seconds / size)} ${unit}`;
        }
        return `${Math.round(seconds)} s`;
    }

    function tick() {
        const now = Date.now() / 1000;
        for (const each of $$("time[data-ago]")) {
            const age = now - Date.parse(each.dateTime) / 1000;
            each.textContent = age < 0 ? `in ${span(-age)}` : age < 1 ? "just now" : `${span(age)} ago`;
        }
        for (const each of $$("time[data-since]")) each.textContent = span(now - Date.parse(each.dateTime) / 1000);
    }
    setInterval(() => { if (!document.hidden) tick(); }, 1000);

    // ------------------------------------------------------------ theme, menu, choosing many

    document.addEventListener("click", (event) => {
        const theme = event.target.closest("[data-theme-switch]");
        if (theme) {
            const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
            document.documentElement.dataset.theme = next;
            try { localStorage.setItem("howdah-theme", next); } catch { /* storage may be off */ }
            tell("theme");
        }
        const menu = event.target.closest("[data-menu]");
        if (menu) menu.setAttribute("aria-expanded", String($(".side").toggleAttribute("data-open")));
        const copy = event.target.closest("[data-copy]");
        if (copy && navigator.clipboard) {
            navigator.clipboard.writeText(copy.dataset.copy).then(() => { copy.textContent = "Copied"; }, () => {});
        }
    });

    document.addEventListener("change", (event) => {
        const all = event.target.closest("[data-choose-all]");
        if (all) for (const each of $$("[data-choose]", all.closest("form"))) each.checked = all.checked;
        if (event.target.closest("[data-choose], [data-choose-all]")) count();
        if (event.target.closest("[data-submit]")) event.target.form.requestSubmit();
    });

    function count() {
        for (const form of $$("form[data-chosen]")) {
            const chosen = $$("[data-choose]:checked", form).length;
            for (const each of $$("[data-chosen-count]", form)) each.textContent = String(chosen);
            for (const each of $$("[data-needs-chosen]", form)) each.hidden = chosen === 0;
        }
    }
    document.body.addEventListener("htmx:after:swap", count);
    count();

    // ------------------------------------------------------------ keys

    const places = { o: "/", j: "/jobs", f: "/failures", q: "/queues", s: "/schedules", t: "/tables", c: "/consumers", l: "/log", n: "/nodes", h: "/health", a: "/audit" };
    let going = false;
    document.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
        if (going) {
            going = false;
            if (places[event.key] !== undefined) location.assign(base + places[event.key]);
        } else if (event.key === "g") {
            going = true;
            setTimeout(() => { going = false; }, 1500);
        } else if (event.key === "/") {
            const search = $("[data-search]");
            if (search) { event.preventDefault(); search.focus(); }
        } else if (event.key === "?") {
            const help = $("#keys");
            if (help) help.showModal();
        }
    });
    for (const each of $$("dialog [data-close]")) each.addEventListener("click", () => each.closest("dialog").close());
})();
