// What a page does by itself: it stays live, follows keys, and asks before it destroys.
"use strict";
(() => {
  const TAIL_ROWS_MAX = 200;
  const PARTS_MS = 1000; // between two looks whether a part has to be asked for anew
  const one = (selector, root) => (root || document).querySelector(selector);
  const all = (selector, root) => [...(root || document).querySelectorAll(selector)];

  // -- Live ------------------------------------------------------------------------------------
  let stream = null;
  let address = "";
  let isGone = false; // what the page shows is no longer there
  let byKey = new Map();
  let texts = new Map(); // the last text of each key
  const parts = new Map(); // what each part is made of now

  function index() {
    byKey = new Map();
    for (const element of all("[data-k]")) {
      const key = element.dataset.k;
      if (!byKey.has(key)) byKey.set(key, []);
      byKey.get(key).push(element);
    }
    // A part that came anew may be ahead of the stream, which only tells what changes.
    for (const [key, text] of texts) show(key, text);
  }

  function pulse(state) {
    const element = one("#pulse");
    if (!element) return;
    element.dataset.state = state;
    one("#pulse-text").textContent = state;
    if (state === "away") {
      if (!awaySince) awaySince = Date.now();
    } else awaySince = 0;
    tellAway();
  }

  // -- A broker that is away: nobody is to take old figures for new ones -----------------------
  const AWAY_MS = 1500; // a stream that is only opened anew is back before
  const QUIET_MS = 6000; // without a word from the broker, it is asked whether it is there
  let awaySince = 0;
  let heardAt = Date.now();
  const title = document.title;

  function tellAway() {
    const banner = one("#away");
    if (!banner) return;
    const isAway = awaySince > 0 && Date.now() - awaySince >= AWAY_MS;
    if (banner.hidden === isAway) {
      banner.hidden = !isAway;
      document.body.classList.toggle("is-away", isAway);
      document.title = isAway ? `Broker away · ${title}` : title;
      // Set once: a text that changed each second would be read aloud each second.
      const at = new Date(awaySince).toISOString().slice(11, 19);
      banner.textContent = isAway
        ? `The broker does not answer. What you see is from ${at} UTC and does not change. ` +
          "The page continues by itself when the broker is back."
        : "";
    }
  }

  async function probe() {
    tellAway();
    if (!stream || document.hidden || Date.now() - heardAt < QUIET_MS) return;
    heardAt = Date.now();
    try {
      await fetch("/health", { signal: AbortSignal.timeout(3000), cache: "no-store" });
      if (stream && stream.readyState === EventSource.OPEN) pulse("live");
    } catch {
      pulse("away");
    }
  }
  setInterval(probe, 500);

  function show(key, text) {
    for (const element of byKey.get(key) || []) {
      if (element.tagName === "PROGRESS") element.value = Number(text);
      else if (element.textContent !== text) element.textContent = text;
    }
  }

  function tail(items) {
    const body = one("#tail");
    if (!body || !one("#follow").checked) return;
    for (const item of items) {
      const [offset, at, size, attributes, preview] = JSON.parse(item);
      const missed = offset - Number(body.dataset.last) - 1;
      if (missed < 0) continue; // told again after the stream was away
      body.dataset.last = offset;
      if (missed > 0) {
        const cell = document.createElement("tr").insertCell();
        cell.colSpan = 5;
        cell.className = "dim";
        cell.textContent = `… ${missed.toLocaleString("en")} not shown`;
        body.prepend(cell.parentElement);
      }
      const row = document.createElement("tr");
      const cells = [offset.toLocaleString("en"), at, size, attributes, preview];
      cells.forEach((text, place) => {
        const cell = row.insertCell();
        const inner = place === 4 ? document.createElement("code") : cell;
        if (place === 4) cell.append(inner);
        inner.textContent = text;
        cell.className = place === 0 || place === 2 ? "n" : place === 4 ? "body" : "";
      });
      body.prepend(row);
    }
    while (body.rows.length > TAIL_ROWS_MAX) body.deleteRow(-1);
    const empty = one("#tail-empty");
    if (empty && items.length) empty.remove();
  }

  function disconnect() {
    if (stream) stream.close();
    stream = null;
    pulse("static");
  }

  function connect() {
    const wanted = one("main") && one("main").dataset.live;
    if (stream) disconnect();
    if (!wanted || isGone) return;
    address = wanted;
    texts = new Map();
    parts.clear();
    index();
    stream = new EventSource(wanted);
    stream.onopen = () => pulse("live");
    stream.onerror = () => pulse("away");
    stream.onmessage = (event) => {
      heardAt = Date.now();
      if (awaySince) pulse("live");
      const frame = JSON.parse(event.data);
      if (frame.reload) {
        disconnect();
        isGone = true;
        reload();
        return;
      }
      for (const [key, text] of Object.entries(frame.set || {})) {
        texts.set(key, text);
        show(key, text);
      }
      for (const [name, made] of Object.entries(frame.parts || {})) parts.set(name, made);
      if (frame.point) nexoCharts.add(frame.point);
      if (frame.items) tail(frame.items);
    };
  }

  // Not under the hands of somebody who is filling in a form: then when it is closed.
  function reload() {
    if (isGone && !one("dialog[open]")) location.reload();
  }
  document.addEventListener("close", reload, true);

  // -- Parts: lists that are asked for anew when something else is in them ---------------------
  function isInUse(part) {
    const marked = getSelection();
    return (
      part.contains(document.activeElement) ||
      one("input:checked", part) !== null ||
      (!marked.isCollapsed && marked.containsNode(part, true))
    );
  }

  async function renew(name, part) {
    const answer = await fetch(location.pathname + location.search, {
      headers: { "HX-Target": name },
    });
    if (!answer.ok || answer.redirected) return;
    const holder = document.createElement("template");
    holder.innerHTML = await answer.text();
    const fresh = one(`#${name}`, holder.content);
    if (!fresh || !part.isConnected || isInUse(part)) return;
    const places = all(".scroll", part).map((each) => each.scrollLeft);
    part.replaceWith(fresh);
    all(".scroll", fresh).forEach((each, place) => (each.scrollLeft = places[place] || 0));
    htmx.process(fresh);
    index();
    selection();
  }

  let isRenewing = false;
  setInterval(async () => {
    if (!stream || isRenewing) return;
    isRenewing = true;
    try {
      for (const [name, made] of parts) {
        const part = document.getElementById(name);
        const has = part && part.dataset.madeOf; // nothing: a part that stays as it is
        if (part && has === made) delete part.dataset.waits;
        if (!has || has === made) continue;
        if (isInUse(part)) part.dataset.waits = ""; // which the page says
        else await renew(name, part);
      }
    } catch {
      // The broker is away, which the pulse says: it is tried again.
    } finally {
      isRenewing = false;
    }
  }, PARTS_MS);

  // A page that nobody sees needs no figures.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && stream) disconnect();
    else if (!document.hidden && !stream && address) connect();
  });

  document.addEventListener("htmx:afterSettle", () => {
    const rows = one("[data-live-next]");
    if (rows) one("main").dataset.live = rows.dataset.liveNext;
    connect();
  });

  // -- Hands -----------------------------------------------------------------------------------
  function copy(button) {
    const text = document.getElementById(button.dataset.copy).textContent.trim();
    const done = () => {
      const before = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = before), 1500);
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done);
    else {
      const range = document.createRange();
      range.selectNodeContents(document.getElementById(button.dataset.copy));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
      done();
    }
  }

  function theme() {
    const root = document.documentElement;
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("nexo-theme", root.dataset.theme);
    nexoCharts.draw();
  }
  addEventListener("nexo-theme", () => nexoCharts.draw());

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.id === "theme") theme();
    if (button.dataset.dialog) {
      const dialog = document.getElementById(button.dataset.dialog);
      for (const element of all("[data-filled]", dialog)) {
        if ("value" in element) element.value = button.dataset.fill;
        else element.textContent = button.dataset.fill;
      }
      dialog.showModal();
    }
    if ("close" in button.dataset) button.closest("dialog").close();
    if (button.dataset.copy) copy(button);
  });

  function selection() {
    const count = all("#letters input[name=id]:checked").length;
    for (const element of all("[data-selected]")) element.textContent = count.toLocaleString("en");
    for (const element of all("[data-needs-selection]")) element.disabled = count === 0;
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]"))
      for (const box of all("#letters input[name=id]")) box.checked = event.target.checked;
    if (event.target.closest("#letters")) selection();
    if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
  });

  // -- Keys ------------------------------------------------------------------------------------
  const pages = {
    o: "", q: "/queues", d: "/dead-letters", t: "/topics", s: "/spark", c: "/consumers",
    a: "/access",
  };
  let going = 0;

  function walk(step) {
    const links = all("table.walk tbody th a");
    const at = links.indexOf(document.activeElement);
    const next = links[Math.max(0, Math.min(links.length - 1, at + step))];
    if (next) next.focus();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog")) return;
    if (going && Date.now() - going < 1500 && event.key in pages) {
      location.href = "/console" + pages[event.key];
    } else if (event.key === "/" && one("[data-filter], #find input")) {
      event.preventDefault();
      (one("[data-filter]") || one("#find input")).focus();
    } else if (event.key === "?") one("#keys").showModal();
    else if (event.key === "j") walk(1);
    else if (event.key === "k") walk(-1);
    going = event.key === "g" ? Date.now() : 0;
  });

  // A link to something folded opens it.
  function unfold() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  }
  addEventListener("hashchange", unfold);
  unfold();

  // On a phone the tabs scroll, and the one of this page may be out of sight.
  const tab = one(".top nav [aria-current]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft;
  nexoCharts.draw();
  selection();
  connect();
})();
