(() => {
  const key = "lanewatch.open";
  const load = () => { try { return JSON.parse(sessionStorage.getItem(key)) || {}; } catch { return {}; } };
  const chosen = load();
  for (const details of document.querySelectorAll("details[id]")) {
    if (details.id in chosen) details.open = chosen[details.id];
    details.querySelector("summary").addEventListener("click", () => {
      const all = load();
      all[details.id] = !details.open;
      try { sessionStorage.setItem(key, JSON.stringify(all)); } catch { /* The choice ends with this page. */ }
    });
  }
})();
