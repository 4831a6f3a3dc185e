"""Use AWS services through boto3: EMR Serverless as a runner, and objects in S3. Needs the extra `aws`.

boto3 finds the credentials as usual: in the environment, a profile, or a role.
"""
