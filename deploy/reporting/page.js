"use strict";
document.documentElement.classList.add("script");
const tip = document.getElementById("tip");
function point(event) {
  const over = event.target.closest("[data-tip]");
  if (!over) { tip.style.display = "none"; return; }
  const title = over.querySelector(":scope > title");
  if (title) title.remove();
  over.removeAttribute("title");
  tip.textContent = over.dataset.tip;
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (event.clientY + box.height + 24 > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16) + "px";
}
addEventListener("pointermove", point);
addEventListener("pointerdown", point);
const buttons = [...document.querySelectorAll(".tabs button")];
function show(number) {
  for (const run of document.querySelectorAll(".run")) run.hidden = run.dataset.number !== number;
  for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.show === number);
}
for (const button of buttons) button.addEventListener("click", () => show(button.dataset.show));
if (buttons.length) show(buttons[0].dataset.show);
