//! `lanewatch audit`: the capacity of the fleet, from a Prometheus that scrapes it.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use super::args::values::parse_time;
use super::args::{AuditArgs, AuditFormat, AuditTable, ServerArgs};
use super::error::CliError;
use super::output::print;
use super::output::{complain, is_capable};
use crate::export::audit;
use crate::export::audit::text;
use crate::export::audit::trend::TrendTable;
use crate::export::audit::{Table, csv_table};
use crate::fleet::audit::{AuditError, AuditPlan, audit};
use crate::fleet::client::{PrometheusClient, PrometheusEndpoint, PrometheusError};
use crate::fleet::query::matchers;
use crate::fleet::query::{Scope, is_label};
use crate::fleet::tally::Fleet;
use crate::fleet::tls::TlsFiles;
use crate::fleet::trend::{TrendPlan, TrendStart, trend};

/// Exit code when something is over a limit of `--fail-on`.
const EXCEEDED: u8 = 3;

/// A server that is too busy is asked again so often.
const RETRIES: u32 = 2;

/// Audits the fleet.
///
/// # Errors
/// A wrong command line, or a server that does not answer.
pub fn run(args: &AuditArgs) -> Result<ExitCode, CliError> {
    let plan = plan(args)?;
    let client = PrometheusClient::new(endpoint(&args.server)?).map_err(|error| match error {
        PrometheusError::Url { .. } | PrometheusError::Tls(_) => CliError::Usage(error.to_string()),
        error => CliError::Other(error.into()),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut meter = ProgressLine { shown: is_capable(&std::io::stderr()) };
    let exceeded = if let Some(since) = &args.since {
        let table = trend_table(args)?;
        let plan = TrendPlan { start: start(since, plan.time)?, steps: u32::from(args.steps), audit: plan };
        let mut show = |audit: usize, audits: usize, done, all| meter.show(audit, audits, done, all);
        let outcome = runtime.block_on(trend(&client, &plan, &mut show));
        meter.end();
        let trend = outcome.map_err(|error| audit_error(error, &plan.audit))?;
        let exceeded = exceeded(args, &trend.now);
        print(&match args.format {
            AuditFormat::Text => audit::trend::report(&trend),
            AuditFormat::Json => audit::trend::json_document(&trend, &exceeded).map_err(anyhow::Error::from)?,
            AuditFormat::Csv => audit::trend::csv_table(&trend, table).map_err(anyhow::Error::from)?,
        })?;
        exceeded
    } else {
        let outcome = runtime.block_on(audit(&client, &plan, &mut |done, all| meter.show(0, 1, done, all)));
        meter.end();
        let fleet = outcome.map_err(|error| audit_error(error, &plan))?;
        let exceeded = exceeded(args, &fleet);
        print(&render(args, &fleet, &exceeded)?)?;
        exceeded
    };
    for line in &exceeded {
        complain(line);
    }
    Ok(if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXCEEDED) })
}

fn exceeded(args: &AuditArgs, fleet: &Fleet) -> Vec<String> {
    args.fail_on.iter().filter_map(|limit| limit.exceeded(fleet)).collect()
}

/// When a comparison begins: an age counts from the audit's own time.
fn start(since: &str, time: Option<f64>) -> Result<TrendStart, CliError> {
    let (start, is_before) = if let Ok(age) = humantime::parse_duration(since) {
        let whole = Duration::from_secs(age.as_secs());
        (TrendStart::Ago(whole.as_secs_f64()), !whole.is_zero())
    } else {
        let at = seconds(since, SystemTime::now())?;
        (TrendStart::At(at), time.is_none_or(|time| at < time))
    };
    if is_before {
        Ok(start)
    } else {
        Err(CliError::Usage(format!("--since {since}: not before the time of the audit")))
    }
}

fn trend_table(args: &AuditArgs) -> Result<TrendTable, CliError> {
    match args.table {
        AuditTable::Groups => Ok(TrendTable::Groups),
        AuditTable::Hosts => Ok(TrendTable::Hosts),
        AuditTable::Fixes => Ok(TrendTable::Problems),
        AuditTable::Excluded => Ok(TrendTable::Excluded),
        AuditTable::Firmware => Err(CliError::Usage("--table firmware: not with --since".to_owned())),
        AuditTable::Cables => Err(CliError::Usage("--table cables: not with --since".to_owned())),
    }
}

/// Why there is no audit. A server that cannot read a query finds fault with what a person wrote into it.
fn audit_error(error: AuditError, plan: &AuditPlan) -> CliError {
    match error {
        AuditError::Client(PrometheusError::Status { status, message, .. })
            if status == StatusCode::BAD_REQUEST && !plan.scope.matchers.is_empty() =>
        {
            CliError::Usage(format!("--match {}: the server says {message}", plan.scope.matchers))
        }
        error @ AuditError::UnknownLabel { .. } => CliError::Usage(error.to_string()),
        error => CliError::Other(error.into()),
    }
}

fn render(args: &AuditArgs, fleet: &Fleet, exceeded: &[String]) -> anyhow::Result<String> {
    let which = match args.table {
        AuditTable::Groups => Table::Groups,
        AuditTable::Hosts => Table::Hosts,
        AuditTable::Fixes => Table::Fixes,
        AuditTable::Firmware => Table::Firmware,
        AuditTable::Excluded => Table::Excluded,
        AuditTable::Cables => Table::Cables,
    };
    Ok(match args.format {
        AuditFormat::Text => text::report(fleet),
        AuditFormat::Json => audit::json_document(fleet, exceeded)?,
        AuditFormat::Csv => csv_table(fleet, which)?,
    })
}

fn plan(args: &AuditArgs) -> Result<AuditPlan, CliError> {
    if let Some(wrong) = args.by.iter().chain(&args.identity).find(|label| !is_label(label)) {
        return Err(CliError::Usage(format!("{wrong:?} is not a label name")));
    }
    if !args.identity.iter().any(|label| label == "instance") {
        return Err(CliError::Usage("--identity must include instance".to_owned()));
    }
    let matchers = matchers(&args.matchers).map_err(|why| CliError::Usage(format!("--match: {why}")))?;
    let time = args.time.as_deref().map(|text| seconds(text, SystemTime::now())).transpose()?;
    Ok(AuditPlan {
        scope: Scope { matchers, identity: args.identity.clone(), by: args.by.clone() },
        time,
        shard: usize::from(args.server.shard),
        top: args.top,
        history: args.history.clone(),
        stale_after: args.stale_after.as_secs_f64(),
    })
}

/// A moment in whole seconds since 1970.
fn seconds(text: &str, now: SystemTime) -> Result<f64, CliError> {
    let since = parse_time(text, now).map_err(CliError::Usage)?.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.map_err(|_| CliError::Usage(format!("{text:?} is before 1970")))?;
    Ok(Duration::from_secs(since.as_secs()).as_secs_f64())
}

fn endpoint(server: &ServerArgs) -> Result<PrometheusEndpoint, CliError> {
    let mut headers = HeaderMap::new();
    for header in &server.headers {
        let pair = header.split_once(':').and_then(|(name, value)| {
            Some((name.trim().parse::<HeaderName>().ok()?, HeaderValue::from_str(value.trim()).ok()?))
        });
        let (name, value) =
            pair.ok_or_else(|| CliError::Usage(format!("{header:?} is not a header such as NAME: VALUE")))?;
        headers.append(name, value);
    }
    if let Some(tenant) = &server.tenant {
        let value =
            HeaderValue::from_str(tenant).map_err(|_| CliError::Usage(format!("{tenant:?} is not a valid tenant")))?;
        headers.insert(HeaderName::from_static("x-scope-orgid"), value);
    }
    let authorization = match (&server.bearer_token_file, &server.username, &server.password_file) {
        (Some(file), ..) => Some((file, format!("Bearer {}", secret(file)?))),
        (None, Some(name), Some(file)) => {
            Some((file, format!("Basic {}", STANDARD.encode(format!("{name}:{}", secret(file)?)))))
        }
        _ => None,
    };
    if let Some((file, text)) = authorization {
        let wrong = |_| CliError::Usage(format!("{}: not valid in an HTTP header", file.display()));
        let mut value = HeaderValue::from_str(&text).map_err(wrong)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(PrometheusEndpoint {
        url: server.prometheus.clone(),
        headers,
        tls: TlsFiles {
            authorities: server.ca_file.clone(),
            identity: server.cert_file.clone().zip(server.key_file.clone()),
            insecure: server.insecure_skip_verify,
        },
        timeout: server.timeout,
        limit: usize::from(server.max_answer) << 20,
        retries: RETRIES,
    })
}

/// The content of a file with a secret, without the line's end.
fn secret(file: &Path) -> Result<String, CliError> {
    let text =
        std::fs::read_to_string(file).map_err(|error| CliError::Usage(format!("{}: {error}", file.display())))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// How far it is, on a terminal.
struct ProgressLine {
    shown: bool,
}

impl ProgressLine {
    fn show(&mut self, audit: usize, audits: usize, done: usize, all: usize) {
        if self.shown {
            let mut out = std::io::stderr().lock();
            // Who does not see it misses nothing.
            let _ = if audits > 1 {
                write!(out, "\raudit {} of {audits}: {done} of {all} hosts\x1b[K", audit + 1)
            } else {
                write!(out, "\r{done} of {all} hosts")
            };
            let _ = out.flush();
        }
    }

    fn end(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_790_000_000_500);
        assert_eq!(seconds("1h", now).ok(), Some(1_789_996_400.0));
        assert_eq!(seconds("2026-09-21T13:33:20Z", now).ok(), Some(1_789_997_600.0));
        assert!(seconds("noon", now).is_err());
    }
}
