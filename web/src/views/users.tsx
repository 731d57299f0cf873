import { useEffect, useState } from "preact/hooks";
import { api, type Stats } from "../api";
import { clean, duration, percent } from "../format";
import { complain } from "../store";

export function Users() {
  const [days, setDays] = useState("7");
  const [stats, setStats] = useState<Stats | null>(null);
  useEffect(() => {
    api.stats(new Date(Date.now() - Number(days) * 86_400_000).toISOString()).then(setStats, complain);
  }, [days]);
  const all = stats?.users.reduce((sum, u) => sum + u.gpu_hours, 0) || 1;
  return (
    <>
      <h1>Users</h1>
      <form class="row" onSubmit={(e) => e.preventDefault()}>
        <label>
          Last{" "}
          <select value={days} onChange={(e) => setDays(e.currentTarget.value)}>
            <option value="1">day</option>
            <option value="7">week</option>
            <option value="30">30 days</option>
          </select>
        </label>
        {stats && <span role="status">{stats.gpu_hours.toFixed(1)} GPU-hours{stats.utilisation !== null && `, GPU allocation ${percent(stats.utilisation * 100)}`}</span>}
      </form>
      <div class="scroll" tabIndex={0} role="region" aria-label="Users and their shares">
        <table>
          <thead>
            <tr>
              <th scope="col">User</th>
              <th scope="col">GPU-hours</th>
              <th scope="col">Share</th>
              <th scope="col">Jobs</th>
              <th scope="col" class="wide">Failed</th>
              <th scope="col" class="wide">Median wait</th>
              <th scope="col" class="wide">95 % waited at most</th>
              <th scope="col" class="wide">Utilisation</th>
            </tr>
          </thead>
          <tbody>
            {stats?.users.slice().sort((a, b) => b.gpu_hours - a.gpu_hours).map((u) => (
              <tr key={u.key}>
                <th scope="row">{clean(u.key, 80)}</th>
                <td>{u.gpu_hours.toFixed(1)}</td>
                <td>
                  <meter min={0} max={1} value={u.gpu_hours / all} aria-label={"Share of " + clean(u.key, 80)} /> {percent((100 * u.gpu_hours) / all)}
                </td>
                <td>{u.jobs}</td>
                <td class="wide">{u.failed}</td>
                <td class="wide">{u.wait_p50_s === null ? "n/a" : duration(u.wait_p50_s)}</td>
                <td class="wide">{u.wait_p95_s === null ? "n/a" : duration(u.wait_p95_s)}</td>
                <td class="wide">{percent(u.avg_util)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
