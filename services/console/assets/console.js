// What pages gain with JavaScript. Each works without it: forms are sent by their buttons, what changes is watched by
// reloading.
"use strict";

(() => {
    document.documentElement.classList.add("scripted");

    const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

    // "4 min ago" stays true while the page is open.
    const ago = (then) => {
        const seconds = Math.max(0, Math.floor((Date.now() - then) / 1000));
        if (seconds < 10) return "just now";
        if (seconds < 90) return `${seconds} s ago`;
        if (seconds < 5400) return `${Math.floor(seconds / 60)} min ago`;
        if (seconds < 129600) return `${Math.floor(seconds / 3600)} h ago`;
        return `${Math.floor(seconds / 86400)} d ago`;
    };
    const refreshTimes = () => {
        for (const time of all("time[data-ago]")) {
            const then = Date.parse(time.dateTime);
            if (!Number.isNaN(then)) time.textContent = ago(then);
        }
    };
    setInterval(refreshTimes, 10000);

    // A choice filters at once.
    for (const select of all("select[data-submit]")) {
        select.addEventListener("change", () => {
            for (const input of all("input, select", select.form)) {
                if (input.value === "") input.disabled = true;
            }
            select.form.requestSubmit();
        });
    }
    // Coming back by the browser's button shows the form as it was left, disabled inputs included.
    addEventListener("pageshow", () => all(".filters :disabled").forEach((input) => { input.disabled = false; }));

    // Ticks.
    const ticks = () => all("input[name=item][type=checkbox]");
    const showTicked = () => {
        const ticked = ticks().filter((tick) => tick.checked).length;
        for (const place of all("[data-ticked]")) place.textContent = ticked > 0 ? ` (${ticked})` : "";
        for (const every of all("[data-tick-all]")) {
            every.checked = ticked > 0 && ticked === ticks().length;
            every.indeterminate = ticked > 0 && ticked < ticks().length;
        }
    };
    for (const every of all("[data-tick-all]")) {
        every.addEventListener("change", () => {
            for (const tick of ticks()) tick.checked = every.checked;
            showTicked();
        });
    }
    for (const tick of ticks()) tick.addEventListener("change", showTicked);
    showTicked();

    // An order that was sent is not sent twice by an impatient second click.
    for (const form of all("form[method=post]")) {
        form.addEventListener("submit", (event) => {
            if (form.dataset.sent) event.preventDefault();
            form.dataset.sent = "yes";
        });
    }
    addEventListener("pageshow", () => all("form[data-sent]").forEach((form) => { delete form.dataset.sent; }));

    // A run, live.
    for (const place of all("[data-live]")) {
        const events = new EventSource(place.dataset.live);
        events.addEventListener("progress", (event) => {
            // Only our own server's markup, in which everything else is escaped. What is focused stays so.
            const focused = place.contains(document.activeElement) ? document.activeElement.value : null;
            place.innerHTML = event.data;
            if (focused) all("button", place).find((button) => button.value === focused)?.focus();
            if (place.querySelector("[data-rests]")) events.close();
        });
        // The page asks who is there, and comes back.
        events.addEventListener("logged-out", () => {
            events.close();
            location.reload();
        });
    }

    // What changes while it is looked at comes again, where no server tells of it by itself. Who has chosen something in it, or marked
    // some of its text, is not disturbed.
    const main = document.getElementById("main");
    const isInUse = () => {
        const active = document.activeElement;
        return (active !== main && main.contains(active)) || getSelection().type === "Range";
    };
    let seconds = Number(document.body.dataset.refresh) || 0;
    const refresh = async () => {
        if (!document.hidden && !isInUse()) {
            try {
                const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(30000) });
                // The session is over: the page asks who is there, and comes back.
                if (answer.redirected || answer.status === 401) return location.reload();
                const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
                if (answer.ok && !isInUse()) {
                    main.replaceChildren(...fresh.getElementById("main").childNodes);
                    seconds = Number(fresh.body.dataset.refresh) || 0;
                    refreshTimes();
                }
            } catch {
                // The console is away, or busy. It is asked again.
            }
        }
        refreshLater();
    };
    const refreshLater = () => {
        if (seconds > 0) setTimeout(refresh, seconds * 1000);
    };
    if (!document.querySelector("[data-live]")) refreshLater();

    // Keys.
    const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;
    const rows = () => all("tr[data-row]");
    let chosen = -1;
    const choose = (place) => {
        const list = rows();
        if (list.length === 0) return;
        chosen = Math.max(0, Math.min(place, list.length - 1));
        list.forEach((row, index) => row.classList.toggle("chosen", index === chosen));
        const link = list[chosen].querySelector("a");
        if (link) link.focus({ preventScroll: true });
        list[chosen].scrollIntoView({ block: "nearest" });
    };
    const places = { o: "/", g: "/groups", i: "/items", r: "/replays", h: "/history" };
    let leader = false;
    addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        if (isTyping(event.target)) {
            if (event.key === "Escape") event.target.blur();
            return;
        }
        if (leader) {
            leader = false;
            if (places[event.key]) location.assign(places[event.key]);
            return;
        }
        switch (event.key) {
            case "/": {
                const search = document.querySelector("[data-search]");
                if (search) { event.preventDefault(); search.focus(); search.select(); }
                break;
            }
            case "g": leader = true; setTimeout(() => { leader = false; }, 1000); break;
            case "j": choose(chosen + 1); break;
            case "k": choose(chosen < 0 ? 0 : chosen - 1); break;
            case "x": {
                const tick = rows()[chosen]?.querySelector("input[type=checkbox]");
                if (tick) tick.click();
                break;
            }
        }
    });
})();
