/* Before the first paint: the chosen theme and language, so that nothing flickers. Not a module: those run too late. */
(function () {
  const saved = (name) => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null; // storage may be forbidden
    }
  };
  const theme = saved("lily.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  const lang = saved("lily.lang") || (navigator.language || "en").slice(0, 2);
  document.documentElement.lang = lang === "pt" ? "pt" : "en";
})();
